"""What the benchmarks over an API server share: the server and its clock, the load, the schedulers that are compared."""
