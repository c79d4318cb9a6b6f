"""The embedded cluster of one machine: API server, kubelet twins, Kubernetes controllers, and how they come up."""
