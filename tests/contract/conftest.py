"""Every contract test runs on the embedded API server, and on the real one when KUBEBUILDER_ASSETS is set."""

from __future__ import annotations

from kit.claim_answers import allocator
from kit.control_plane import api, namespace

__all__ = ["allocator", "api", "namespace"]
