"""What several scenarios begin with."""

from __future__ import annotations

from kit.real_node import on_cluster

__all__ = ["on_cluster"]
