"""Claims of devices around the engine: an API server that keeps ResourceClaims, and the controller that clears them."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from kit.claims import DRIVER, claim, device, published
from kit.engine_world import World
from kit.objects import node, pod
from pumice.audit import claim_rules
from pumice.audit.auditor import shares_of
from pumice.effects.vocabulary import Bind, Deallocate, SchedulerEffect
from pumice.scheduler.engine import Engine
from pumice.wire.quantity import parse_quantity

Json = dict[str, Any]
GPU = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def cards(of: str, number: int = 2, **more: Any) -> Json:
    """The slice of a node with so many whole cards."""
    return {"kind": "ResourceSlice", **published(*(device(f"card-{at}") for at in range(number)), name=f"s-{of}", pool=of,
                                                 nodeName=of, **more)}  # fmt: skip


class ClaimWorld(World):
    """``refuse_claim``: why the API server refuses the write on a claim, before it is done; empty: it does not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.claims: dict[str, Json] = {}
        self.slices: dict[str, Json] = {}
        self.device_classes: dict[str, Json] = {}
        self.refuse_claim: Callable[[Bind], bool] = lambda bind: False
        self.clears = True
        """The controller clears claims of pods that are gone at once; else when the test says so."""
        self.mapped: dict[str, list[Json]] = {}
        """By pod which request serves which container's resource."""
        self._gone: list[str] = []

    # -- objects ------------------------------------------------------------------------------------------------------

    def nodes_with(self, number: int, each: int = 2) -> None:
        self.publish(GPU)
        for at in range(number):
            self.add(node(f"n{at}"))
            self.publish(cards(f"n{at}", each))

    def publish(self, *objects: Json) -> None:
        """Create or replace claims, slices and classes, and tell the engine."""
        for obj in objects:
            obj = copy.deepcopy(obj) if obj["kind"] == "DeviceClass" else obj  # some are constants of tests
            self.version += 1
            obj["metadata"].setdefault("uid", f"{obj['kind']}-{obj['metadata']['name']}-{self.version}")
            obj["metadata"]["resourceVersion"] = str(self.version)
            state, value = self.engine.state.device_claims, copy.deepcopy(obj)
            match obj["kind"]:
                case "ResourceClaim":
                    self.claims[self._key(obj)] = obj
                    state.put_claim(value)
                case "ResourceSlice":
                    self.slices[obj["metadata"]["name"]] = obj
                    state.put_slice(value)
                case "DeviceClass":
                    self.device_classes[obj["metadata"]["name"]] = obj
                    state.put_class(value)

    def restarted(self) -> Engine:
        """A second engine that has seen the objects only, claims last."""
        engine = super().restarted()
        state = engine.state.device_claims
        shown = ((state.put_class, self.device_classes), (state.put_slice, self.slices), (state.put_claim, self.claims))
        for put, table in shown:
            for obj in table.values():
                put(copy.deepcopy(obj))
        return engine

    def withdraw(self, kind: str, key: str) -> None:
        state = self.engine.state.device_claims
        tables = {"ResourceClaim": self.claims, "ResourceSlice": self.slices, "DeviceClass": self.device_classes}
        obj = tables[kind].pop(key)
        {"ResourceClaim": state.drop_claim, "ResourceSlice": state.drop_slice, "DeviceClass": state.drop_class}[kind](obj)

    def ask(self, name: str, *specs: Json, group: str | None = None, cpu: str | None = "100m", **more: Any) -> None:
        """A pod with a claim of its own for each spec, made of a template."""
        entries, made = [], []
        uid = f"pod-{name}"
        for at, spec in enumerate(specs):
            key = f"{name}-c{at}"
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
            self.publish({"kind": "ResourceClaim", "spec": copy.deepcopy(spec["spec"]),
                          "metadata": {"name": key, "namespace": "default", "ownerReferences": [owner]}})  # fmt: skip
            entries.append({"name": f"c{at}", "resourceClaimTemplateName": "t"})
            made.append({"name": f"c{at}", "resourceClaimName": key})
        body = pod(name, group=group, cpu=cpu, resourceClaims=entries, **more)
        body["metadata"]["uid"] = uid
        body["status"]["resourceClaimStatuses"] = made
        self.add(body)

    def use(self, name: str, *keys: str, **more: Any) -> None:
        """A pod that names claims which others may name."""
        entries = [{"name": key, "resourceClaimName": key} for key in keys]
        self.add(pod(name, cpu="100m", resourceClaims=entries, **more))

    def shared(self, name: str, spec: Json) -> None:
        self.publish({"kind": "ResourceClaim", "spec": spec["spec"], "metadata": {"name": name, "namespace": "default"}})

    def devices_of(self, key: str) -> list[str]:
        allocation = self.claims[f"default/{key}"].get("status", {}).get("allocation") or {"devices": {"results": []}}
        return [f"{one['pool']}/{one['device']}" for one in allocation["devices"]["results"]]

    def users_of(self, key: str) -> list[str]:
        return [one["name"] for one in self.claims[f"default/{key}"].get("status", {}).get("reservedFor", ())]

    # -- effects ------------------------------------------------------------------------------------------------------

    def perform(self, effect: SchedulerEffect) -> None:
        if isinstance(effect, Deallocate):
            self._deallocate(f"{effect.namespace}/{effect.name}", effect.pod)
        else:
            super().perform(effect)

    def _bind(self, effect: Bind) -> None:
        if effect.device_claims and self.refuse_claim(effect):
            self.engine.bind_failed(effect.uid, self.now)
            return
        for one in effect.device_claims:
            if one.made is not None and f"{one.namespace}/{one.name}" not in self.claims:
                self.publish(copy.deepcopy(one.made))
                self.mapped[effect.uid] = [dict(each) for each in one.mappings]
            held = self.claims[f"{one.namespace}/{one.name}"]
            assert one.made is not None or held["metadata"]["uid"] == one.uid
            status = held.setdefault("status", {})
            assert "allocation" in status or one.allocation is not None, "a reservation of a claim without devices"
            status.setdefault("allocation", one.allocation)
            status.setdefault("reservedFor", []).append({"resource": "pods", "name": effect.name, "uid": effect.uid})
            self.publish(held)
        bound = f"{effect.namespace}/{effect.name}" in self.pods and not self.refuse(effect)
        super()._bind(effect)
        if not bound:
            for one in effect.device_claims:
                self._unreserve(f"{one.namespace}/{one.name}", effect.uid)
                if one.made is not None:
                    self.withdraw("ResourceClaim", f"{one.namespace}/{one.name}")

    def forget_pod(self, obj: Json) -> None:
        super().forget_pod(obj)
        self._gone.append(obj["metadata"]["uid"])
        if self.clears:
            self.clear()

    def clear(self) -> None:
        """Clear what pods had that are gone, and delete what was made for them."""
        gone, self._gone = self._gone, []
        for uid in gone:
            for key in list(self.claims):
                self._unreserve(key, uid)
                owners = self.claims[key]["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == uid for owner in owners):
                    self.withdraw("ResourceClaim", key)

    def _unreserve(self, key: str, uid: str) -> None:
        status = self.claims[key].get("status", {})
        left = [one for one in status.get("reservedFor", ()) if one["uid"] != uid]
        if len(left) < len(status.get("reservedFor", ())):
            status["reservedFor"] = left
            if not left:
                self.claims[key]["status"] = {}
            self.publish(self.claims[key])

    def _deallocate(self, key: str, pod: str) -> None:
        if key in self.claims and "status" in self.claims[key]:
            status = self.claims[key]["status"]
            left = [one for one in status.get("reservedFor", ()) if one["uid"] != pod]
            self.claims[key]["status"] = {**status, "reservedFor": left} if left else {}
            self.publish(self.claims[key])

    # -- looking ------------------------------------------------------------------------------------------------------

    def nodes_as_counted(self) -> Iterable[Json]:
        """Resources in whose place a class stands are counted by devices, where a node offers none of them itself."""
        names = {one["resourceName"] for served in self.mapped.values() for one in served}
        names |= {name for one in self.device_classes.values() if (name := one["spec"].get("extendedResourceName"))}
        for obj in self.nodes.values():
            offered = obj["status"]["allocatable"]
            yield {**obj, "status": {**obj["status"], "allocatable": {**dict.fromkeys(names, "1000000"), **offered}}}

    def check(self) -> None:
        super().check()
        assert list(self.engine.state.device_claims.validate()) == []
        shares = claim_rules.in_two_worlds(self.claims.values(), self.slices.values(), shares_of(self.pods.values()))
        assert list(shares) == []
        taken: set[tuple[str, ...]] = set()
        consumed: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
        for held in self.claims.values():
            allocation = held.get("status", {}).get("allocation")
            for one in allocation["devices"]["results"] if allocation else ():
                place = (one["driver"], one["pool"], one["device"])
                if one.get("adminAccess"):
                    continue
                if "shareID" not in one:
                    assert place not in taken, f"{place} is given twice"
                    taken.add(place)
                for name, amount in one.get("consumedCapacity", {}).items():
                    consumed[*place, name] += parse_quantity(amount)
        for obj in self.slices.values():
            for one in obj["spec"].get("devices", ()):
                for name, capacity in one.get("capacity", {}).items():
                    place = (obj["spec"]["driver"], obj["spec"]["pool"]["name"], one["name"])
                    assert consumed[*place, name] <= parse_quantity(capacity["value"]), f"{place}: too much {name}"


def whole(number: int = 1, **more: Any) -> Json:
    """A claim for so many cards."""
    return claim({"name": "g", "exactly": {"deviceClassName": "gpu", "count": number, **more}})


__all__ = ["DRIVER", "GPU", "ClaimWorld", "cards", "whole"]
