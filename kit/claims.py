"""Slices, classes and claims in a few words, and what a node gives for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from pumice.claims.allocation import Allocation
from pumice.claims.objects import DeviceClass, claim_of, class_of, results_of, slice_of
from pumice.claims.reasons import Unallocated
from pumice.claims.search import BUDGET, Search, allocate, finished
from pumice.claims.slices import Node, Slices
from pumice.claims.usage import Usage, usage_of

DRIVER = "gpu.example.com"
Object = dict[str, Any]
COUNTERS = {"name": "card", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}}


def shared_card(name: str = "card-0", **more: Any) -> Object:
    """A card of 80 Gi and 100 cores that many claims may have a part of."""
    memory = {"value": "80Gi", "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}}
    cores = {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}}
    return {"name": name, "allowMultipleAllocations": True, "attributes": {"uuid": {"string": f"GPU-{name}"}},
            "capacity": {"memory": memory, "cores": cores}, **more}  # fmt: skip


def device(name: str, draws: str = "", **more: Any) -> Object:
    """A device for one claim at a time; ``draws``: memory that it takes of the card's counters."""
    drawn = [{"counterSet": "card", "counters": {"memory": {"value": draws}}}] if draws else []
    return {"name": name, "attributes": {"uuid": {"string": name}}, "consumesCounters": drawn, **more}


def published(*devices: Object, name: str = "s0", driver: str = DRIVER, pool: str = "n1", slices: int = 1, **spec: Any) -> Object:
    where = {} if {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n1"}
    whole = {"name": pool, "generation": spec.pop("generation", 1), "resourceSliceCount": slices}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": whole, "devices": list(devices), **where, **spec}}


def with_counters(*devices: Object, driver: str = DRIVER, pool: str = "n1", sets: Sequence[Object] = (COUNTERS,)) -> list[Object]:
    """A pool with a counter set: two slices, as Kubernetes wants it."""
    return [published(*devices, name=f"{driver}-0", driver=driver, pool=pool, slices=2),
            published(name=f"{driver}-1", driver=driver, pool=pool, slices=2, sharedCounters=list(sets))]  # fmt: skip


def asks(name: str = "g", *, expression: str = "", capacity: Object | None = None, **more: Any) -> Object:
    """A request for one device of the class ``gpu``."""
    found: Object = {"name": name, "exactly": {"deviceClassName": "gpu", **more}}
    if expression:
        found["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    if capacity is not None:
        found["exactly"]["capacity"] = {"requests": capacity}
    return found


def claim(*requests: Object, name: str = "c", **more: Any) -> Object:
    devices = {"requests": list(requests), **more}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": devices}}


def of_memory(amount: str, **more: str) -> Object:
    return claim(asks(capacity={"memory": amount, **more}))


class Cluster:
    """Slices, and claims that have their devices; time goes on by what is asked of it."""

    def __init__(self, *slices: Object, classes: Sequence[Object] = ()) -> None:
        given = [{"metadata": {"name": "gpu"}, "spec": {}}, *classes]
        self.classes: dict[str, DeviceClass] = {one["metadata"]["name"]: class_of(one) for one in given}
        self.usage = Usage()
        self.claims: list[Object] = []
        self._numbers = count()
        self.objects = given
        self.publish(*slices)

    def publish(self, *slices: Object) -> None:
        """The drivers publish these slices now, and no others."""
        self.published = list(slices)
        self.slices = Slices(map(slice_of, slices))
        self._count()

    def search(self, *claims: Object, budget: int = BUDGET, node: str = "n1") -> Search[tuple[Allocation, ...] | Unallocated]:
        return allocate(list(map(claim_of, claims)), Node(node, {"zone": "z1"}), self.slices, self.classes, self.usage,
                        share_id=lambda: f"share-{next(self._numbers)}", budget=budget)  # fmt: skip

    def gives(self, *claims: Object, node: str = "n1") -> list[str]:
        """Write the allocation, and return ``request device``; the words of the refusal where there is none."""
        found = finished(self.search(*claims, node=node))
        if isinstance(found, Unallocated):
            return found.lines
        self.claims += ({**object_, "status": {"allocation": one.as_json()}} for object_, one in zip(claims, found, strict=True))
        self._count()
        return [f"{device.request} {device.place.id.device}" for one in found for device in one.devices]

    def would_give(self, claim: Object) -> bool:
        """Return whether a claim would get its devices; nothing is written."""
        return not isinstance(finished(self.search(claim)), Unallocated)

    def keep(self, claim: Object, found: Sequence[Allocation]) -> None:
        """Write an allocation that somebody else found."""
        self.claims += ({**claim, "status": {"allocation": one.as_json()}} for one in found)
        self._count()

    def question(self, *claims: Object) -> Object:
        """Return the question to Kubernetes' allocator."""
        defaults = {"allocationMode": "ExactCount", "count": 1}  # those that the API server sets
        asked = [_with_defaults(one, defaults) for one in claims]
        node = {"metadata": {"name": "n1", "labels": {"zone": "z1"}}}
        return {"node": node, "slices": self.published, "classes": self.objects, "claims": asked, "inUse": self.claims}

    @property
    def last(self) -> list[Object]:
        """The results of the claim that was served last."""
        found: list[Object] = self.claims[-1]["status"]["allocation"]["devices"]["results"]
        return found

    def _count(self) -> None:
        self.usage = usage_of((one for held in self.claims for one in results_of(held)), self.slices, self.usage)


def _with_defaults(claim_: Object, defaults: Object) -> Object:
    requests = [
        {**one, "exactly": {**defaults, **one["exactly"]}} if "exactly" in one
        else {**one, "firstAvailable": [{**defaults, **part} for part in one["firstAvailable"]]}
        for one in claim_["spec"]["devices"]["requests"]
    ]  # fmt: skip
    return {**claim_, "spec": {"devices": {**claim_["spec"]["devices"], "requests": requests}}}
