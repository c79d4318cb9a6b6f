"""The services of every daemon: pages, tasks, leases, work queues."""
