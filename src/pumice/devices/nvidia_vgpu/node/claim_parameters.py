"""Opaque parameters of claims: NVIDIA's ``GpuConfig`` and ``MigDeviceConfig`` where they mean something here, a refusal by name
where not.

NVIDIA k8s-dra-driver-gpu api/nvidia.com/resource/v1beta1. Cards are shared in time here, each share held to its percentage, so
that the strategy TimeSlicing at the driver's own interval is what a share has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pumice.wire.names import CLAIM_DRIVER, CLAIM_PARAMETERS

_LEAVE_OUT: Final = "leave config out"


class _TimeSlicing(msgspec.Struct, forbid_unknown_fields=True):
    interval: str | None = None


class _Sharing(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    strategy: str = ""
    time_slicing_config: _TimeSlicing | None = None
    mps_config: Any = None


class _GpuConfig(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    sharing: _Sharing | None = None


def refusal(claim: Mapping[str, Any], driver: str = CLAIM_DRIVER) -> str:
    """Return why parameters of an allocated claim for ``driver`` are not served; empty where they are, or there are none."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for config in (allocation.get("devices") or {}).get("config") or ():
        opaque = config.get("opaque") or {}
        if opaque.get("driver") == driver and (why := _refused(opaque.get("parameters"))):
            of = {"FromClass": "of its class", "FromClaim": "of the claim"}.get(str(config.get("source")), "")
            return f"opaque parameters{f' {of}' if of else ''}: {why}"
    return ""


def _refused(parameters: Any) -> str:
    if not isinstance(parameters, Mapping):
        return f"they are no object; {_LEAVE_OUT}"
    version, kind = str(parameters.get("apiVersion", ""))[:100], str(parameters.get("kind", ""))[:100]
    if version != CLAIM_PARAMETERS:
        return f"apiVersion {version!r} (kind {kind or 'none'}) is not known to {CLAIM_DRIVER}, which reads {CLAIM_PARAMETERS}"
    if kind not in ("GpuConfig", "MigDeviceConfig"):
        return f"kind {kind or 'none'} is not served by {CLAIM_DRIVER}, which reads GpuConfig and MigDeviceConfig"
    try:
        sharing = msgspec.convert(parameters, _GpuConfig).sharing
    except msgspec.ValidationError as problem:
        return f"{kind}: {problem}"
    if sharing is None:
        return ""
    if kind == "MigDeviceConfig" and sharing.time_slicing_config is not None:
        return f"{kind} has no timeSlicingConfig"
    if sharing.strategy == "MPS":
        return f"strategy MPS is not served by {CLAIM_DRIVER}: memory and cores are asked by capacity and held without it"
    if sharing.strategy != "TimeSlicing":
        return f"strategy {sharing.strategy[:100]!r} is not known; TimeSlicing is"
    if sharing.mps_config is not None:
        return "mpsConfig stands beside the strategy TimeSlicing"
    interval = sharing.time_slicing_config.interval if sharing.time_slicing_config else None
    if interval not in (None, "", "Default"):
        return f"interval {interval[:100]!r} is not set for a share, for it would be the whole card's; Default is served"
    return ""
