"""The common part of the benchmarks over an API server: the server and its clock, the load, the schedulers that are compared."""
