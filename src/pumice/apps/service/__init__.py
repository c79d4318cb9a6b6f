"""What every daemon is served by: pages, tasks, leases, queues of work."""
