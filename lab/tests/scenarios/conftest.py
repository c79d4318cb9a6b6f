"""Common beginnings of scenarios."""

from __future__ import annotations

from kit.real_node import on_cluster

__all__ = ["on_cluster"]
