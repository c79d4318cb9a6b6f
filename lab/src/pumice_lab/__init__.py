"""The laboratory: what plays a world for Pumice. An embedded cluster of one machine (API server, kubelet twins, Kubernetes
controllers, and how they come up), and the emulated machine. The product never imports it."""

__version__ = "0.2.0"
