"""Kubernetes' own controllers for the embedded API server: workloads, garbage collection, namespaces.

Each controller is a pure function from what is wanted and what is there to a list of actions; ``manager`` watches,
queues and carries them out. With the real control plane kube-controller-manager runs instead.
"""
