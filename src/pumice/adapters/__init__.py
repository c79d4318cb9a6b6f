"""The only code that touches the world: the Kubernetes API, the kubelet, NVML, the shared region."""
