"""The Kubernetes API over aiohttp: credentials, requests, list and watch (docs/adr/0002)."""

from pumice.adapters.kube.client import KubeClient
from pumice.adapters.kube.config import Access, in_cluster, load_kubeconfig

__all__ = ["Access", "KubeClient", "in_cluster", "load_kubeconfig"]
