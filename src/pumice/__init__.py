"""Pumice: fractions of GPUs and NPUs, on one machine or a Kubernetes cluster."""

__version__ = "0.1.0"
