"""The result that is written to a claim's status: devices, their configuration, and the nodes that can use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from pumice.claims.ledger import Taken
from pumice.claims.objects import ResourceClaim, Toleration
from pumice.claims.reasons import shown
from pumice.claims.requests import Ask, Claim
from pumice.claims.slices import PooledDevice
from pumice.wire.objects import NAME_FIELD


@dataclass(frozen=True, slots=True)
class Allocated:
    """One device of a claim."""

    request: str
    place: PooledDevice
    share_id: str = ""
    consumed: Mapping[str, Fraction] = field(default_factory=dict)
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()

    def as_json(self) -> dict[str, Any]:
        device = self.place.device
        said = {
            "request": self.request, **self.place.id._asdict(), "adminAccess": self.admin_access,
            "tolerations": msgspec.to_builtins(self.tolerations), "bindingConditions": list(device.binding_conditions),
            "bindingFailureConditions": list(device.binding_failure_conditions), "shareID": self.share_id,
            "consumedCapacity": {name: shown(amount) for name, amount in self.consumed.items()},
        }  # fmt: skip
        return {key: value for key, value in said.items() if value}


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of one claim."""

    claim: ResourceClaim
    devices: tuple[Allocated, ...]
    config: tuple[dict[str, Any], ...] = ()
    node_selector: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return ``status.allocation``."""
        devices: dict[str, Any] = {"results": [device.as_json() for device in self.devices]}
        if self.config:
            devices["config"] = list(self.config)
        return {"devices": devices, **({"nodeSelector": self.node_selector} if self.node_selector is not None else {})}


def allocations(
    claims: Sequence[Claim], taken: Sequence[Taken], node: str, share_id: Callable[[], str]
) -> tuple[Allocation, ...]:
    """Return an allocation for each claim from the devices that were taken, in the order of its requests."""
    return tuple(_allocation(claim, [one for one in taken if one.ask.claim_at == at], node, share_id)
                 for at, claim in enumerate(claims))  # fmt: skip


def _allocation(claim: Claim, taken: Sequence[Taken], node: str, share_id: Callable[[], str]) -> Allocation:
    devices = tuple(
        Allocated(
            one.ask.name, one.place, share_id() if one.is_shared else "", one.consumed, one.ask.asked.admin_access,
            one.ask.asked.tolerations,
        )
        for one in taken
    )  # fmt: skip
    chosen = list({one.ask.name: one.ask for one in taken}.values())
    config = (*_of_classes(chosen), *_of_claim(claim.claim, chosen))
    return Allocation(claim.claim, devices, config, _node_selector([one.place for one in taken], node))


def _of_classes(chosen: Sequence[Ask]) -> Iterator[dict[str, Any]]:
    """Each class once, with all requests that named it."""
    for class_ in {ask.class_.name: ask.class_ for ask in chosen}.values():
        requests = [ask.name for ask in chosen if ask.class_.name == class_.name]
        for one in class_.spec.config:
            yield {"source": "FromClass", "requests": requests, **({"opaque": one.opaque} if one.opaque else {})}


def _of_claim(claim: ResourceClaim, chosen: Sequence[Ask]) -> Iterator[dict[str, Any]]:
    """Those for all requests, for one of them, or for the alternative that was chosen."""
    names = {name for ask in chosen for name in (ask.request, ask.name)}
    for one in claim.devices.config:
        if not one.requests or names & set(one.requests):
            requests = {"requests": list(one.requests)} if one.requests else {}
            yield {"source": "FromClaim", **requests, **({"opaque": one.opaque} if one.opaque else {})}


def _node_selector(places: Sequence[PooledDevice], node: str) -> dict[str, Any] | None:
    """Return the node itself where a device is local to it or binds to it; else what all slices ask for together."""
    fields: list[Any] = []
    expressions: list[Any] = []
    for place in places:
        own = place.device if place.slice.spec.per_device_node_selection else place.slice.spec
        if own.node_name or place.device.binds_to_node:
            only = {"key": NAME_FIELD, "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        for term in (own.node_selector or {}).get("nodeSelectorTerms") or ():
            fields += (one for one in term.get("matchFields") or () if one not in fields)
            expressions += (one for one in term.get("matchExpressions") or () if one not in expressions)
    term = {key: value for key, value in (("matchFields", fields), ("matchExpressions", expressions)) if value}
    return {"nodeSelectorTerms": [term]} if term else None
