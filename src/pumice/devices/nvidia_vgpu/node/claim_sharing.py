"""Opaque parameters of claims: NVIDIA's ``GpuConfig`` and ``MigDeviceConfig`` where they mean something here, else a refusal by
name (NVIDIA k8s-dra-driver-gpu api/nvidia.com/resource/v1beta1). Pure.

Cards are shared in time here, each share held to its percentage, so that the strategy TimeSlicing at the driver's own interval is
what a share has anyway. By the strategy MPS the programs of a claim run at once, on a card that it has alone: a daemon of that
card holds each of them to what the parameters say (ADR 78).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from pumice.devices.nvidia_vgpu.node.inventory import CAPABILITY
from pumice.model.amount import MIB
from pumice.node.claims import ClaimShare
from pumice.node.mps import Bounds
from pumice.ports.cards import CardFacts
from pumice.wire.names import CLAIM_DRIVER, CLAIM_PARAMETERS
from pumice.wire.quantity import parse_quantity

LEAVE_OUT: Final = "leave config out"
CARD, SLICE = "GpuConfig", "MigDeviceConfig"


class _TimeSlicing(msgspec.Struct, forbid_unknown_fields=True):
    interval: str | None = None


class _Mps(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: str | int | float | None = None
    default_per_device_pinned_memory_limit: dict[str, str | int | float] | None = None


class _Sharing(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    strategy: str = ""
    time_slicing_config: _TimeSlicing | None = None
    mps_config: _Mps | None = None


class _Config(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    sharing: _Sharing | None = None


@dataclass(frozen=True, slots=True)
class Parameters:
    """One part of an allocation's configuration. ``requests``: for which it is, empty for all; ``of``: who wrote it, in words."""

    requests: frozenset[str]
    of: str
    kind: str
    sharing: _Sharing | None

    def concerns(self, share: ClaimShare) -> bool:
        named = {share.request, share.request.partition("/")[0]}
        return self.kind == (CARD if share.slice is None else SLICE) and (not self.requests or bool(named & self.requests))

    def refused(self, why: str) -> str:
        return f"opaque parameters{f' {self.of}' if self.of else ''}: {why}"


def parameters_of(claim: Mapping[str, Any], driver: str = CLAIM_DRIVER) -> list[Parameters] | str:
    """Return the parameters of an allocated claim for ``driver``, of which later ones count before earlier ones; or why one of
    them is refused, whatever it is for."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found = []
    for config in (allocation.get("devices") or {}).get("config") or ():
        opaque = config.get("opaque") or {}
        if opaque.get("driver") != driver:
            continue
        of = {"FromClass": "of its class", "FromClaim": "of the claim"}.get(str(config.get("source")), "")
        read = _read(opaque.get("parameters"))
        one = Parameters(frozenset(config.get("requests") or ()), of, *(("", None) if isinstance(read, str) else read))
        if isinstance(read, str):
            return one.refused(read)
        found.append(one)
    return found


def shared_as_asked(
    shares: Sequence[ClaimShare], parameters: Sequence[Parameters], cards: Sequence[CardFacts], mps: bool
) -> list[ClaimShare] | str:
    """Return the shares as their parameters want them shared, or why that cannot be. ``mps``: whether the node keeps daemons."""
    of = [next((one for one in reversed(parameters) if one.concerns(share)), None) for share in shares]
    found = []
    for share, own in zip(shares, of, strict=True):
        if own is None or own.sharing is None or own.sharing.strategy != "MPS" or share.admin:
            found.append(share)
            continue
        together = [one.card for one, theirs in zip(shares, of, strict=True) if theirs is own]
        card = next(one for one in cards if one.uuid == share.card)
        why = _alone(share, shares, card) if mps else (
            f"strategy MPS needs an MPS control daemon, and this node's driver keeps none: give it --mps-root, or {LEAVE_OUT}")
        bounds = why or _bounds(share, card, own.sharing.mps_config or _Mps(), together)
        if isinstance(bounds, str):
            return own.refused(bounds)
        found.append(msgspec.structs.replace(share, mps=bounds))
    return found


def _alone(share: ClaimShare, shares: Sequence[ClaimShare], card: CardFacts) -> str:
    """Return why the programs of a share cannot have a server of their own; empty where they can."""
    if not share.whole and share.memory < card.memory // MIB * MIB:
        return (f"strategy MPS takes a card alone, and request {share.request} has a part of it: ask for no capacity; "
                f"a part is held to its memory and cores without MPS, so else {LEAVE_OUT}")  # fmt: skip
    if (many := sum(one.request == share.request for one in shares)) > 1:
        return (f"request {share.request} has {many} cards, and under MPS a container reaches the daemon of one: "
                "ask for one card by a request, and one request by a container")  # fmt: skip
    if (0, 0) != card.capability < CAPABILITY:
        had, needed = (".".join(map(str, version)) for version in (card.capability, CAPABILITY))
        return f"MPS bounds nobody below compute capability {needed}, and card {card.uuid} has {had}"
    return ""


def _bounds(share: ClaimShare, card: CardFacts, config: _Mps, together: Sequence[str]) -> Bounds | str:
    """``together``: the cards of all shares with these parameters, which number them."""
    percent = config.default_active_thread_percentage
    if percent is not None and not 1 <= percent <= 100:
        return f"defaultActiveThreadPercentage {percent} is not from 1 to 100"
    limit = config.default_pinned_device_memory_limit
    by_number = {str(number): uuid for number, uuid in enumerate(together)}
    for key, of_card in (config.default_per_device_pinned_memory_limit or {}).items():
        named = key if key in together else by_number.get(key, "")
        if not named:
            return f"defaultPerDevicePinnedMemoryLimit: {key[:100]!r} is neither the UUID nor the number of a card of the claim"
        limit = of_card if named == card.uuid else limit
    try:
        least = Fraction(card.memory) if limit is None else parse_quantity(limit)
    except ValueError as error:
        return f"a limit of pinned memory: {error}"
    if least < MIB:
        return f"a limit of pinned memory is {float(least):g} bytes; the least is 1Mi"
    cores = share.cores or 100  # HAMi's 0 cores are no limit
    return Bounds(min(int(least), share.memory) // MIB, min(cores, percent or 100))


def _read(parameters: Any) -> tuple[str, _Sharing | None] | str:
    """Return kind and sharing of parameters, or why they are refused."""
    if not isinstance(parameters, Mapping):
        return f"they are no object; {LEAVE_OUT}"
    version, kind = str(parameters.get("apiVersion", ""))[:100], str(parameters.get("kind", ""))[:100]
    if version != CLAIM_PARAMETERS:
        return f"apiVersion {version!r} (kind {kind or 'none'}) is not known to {CLAIM_DRIVER}, which reads {CLAIM_PARAMETERS}"
    if kind not in (CARD, SLICE):
        return f"kind {kind or 'none'} is not served by {CLAIM_DRIVER}, which reads {CARD} and {SLICE}"
    try:
        sharing = msgspec.convert(parameters, _Config).sharing
    except msgspec.ValidationError as problem:
        return f"{kind}: {problem}"
    return (sharing and _refused(kind, sharing)) or (kind, sharing)


def _refused(kind: str, sharing: _Sharing) -> str:
    if kind == SLICE and sharing.time_slicing_config is not None:
        return f"{kind} has no timeSlicingConfig"
    if sharing.strategy == "MPS":
        if kind == SLICE:
            return ("strategy MPS is not served for MIG slices, which the hardware holds to their memory and cores: ask for a "
                    f"slice a container, or {LEAVE_OUT}")  # fmt: skip
        return "timeSlicingConfig stands beside the strategy MPS" if sharing.time_slicing_config is not None else ""
    if sharing.strategy != "TimeSlicing":
        return f"strategy {sharing.strategy[:100]!r} is not known; TimeSlicing and MPS are"
    if sharing.mps_config is not None:
        return "mpsConfig stands beside the strategy TimeSlicing"
    interval = sharing.time_slicing_config.interval if sharing.time_slicing_config else None
    if interval not in (None, "", "Default"):
        return f"interval {interval[:100]!r} is not set for a share, for it would be the whole card's; Default is served"
    return ""
