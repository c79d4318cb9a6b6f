"""Every test here runs on the kubelet twin, and by `make e2e` on the real kubelet."""

from kit.kubelet_nodes import on, where

__all__ = ["on", "where"]
