"""Random histories of claims, slices and pods with claims: the judge, which imports nothing of the allocator, looks at each step.

No device is given twice, what is allocated is what the judge accepts, and no pod that may have its devices is asleep.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.claim_judge import Judge
from kit.claim_worlds import NODE, World
from kit.device_claims import ClaimWorld
from kit.objects import node

Json = dict[str, Any]
SEEDS = range(60)


def allocation(held: Json) -> Json | None:
    found: Json | None = held.get("status", {}).get("allocation")
    return found


class History:
    """Pods that come with the claims of random worlds, and go, on the node of one of them."""

    def __init__(self, seed: int) -> None:
        self.case = World(seed)
        self.dice = self.case.dice
        self.world = ClaimWorld(seed=seed)
        self.seen: list[Json] = []
        labels = self.case.node["metadata"].get("labels", {})
        self.world.add(node(NODE, labels=labels, cpu="64"))
        self.world.publish(*({"kind": "DeviceClass", **copy.deepcopy(one)} for one in self.case.classes))
        self.publish(*self.case.seen)
        for at, one in enumerate(self.case.in_use):
            held = {"kind": "ResourceClaim", **copy.deepcopy(one)}
            held["metadata"] |= {"name": f"used-{at}", "namespace": "default"}
            held["status"].setdefault("reservedFor", [{"resource": "pods", "name": "x", "uid": f"x{at}"}])
            self.world.publish(held)
        self.pods: dict[str, list[Json]] = {}

    def publish(self, *slices: Json) -> None:
        self.world.publish(*({"kind": "ResourceSlice", **copy.deepcopy(one)} for one in slices))
        names = {one["metadata"]["name"] for one in slices}
        self.seen = [*(one for one in self.seen if one["metadata"]["name"] not in names), *slices]

    def step(self, at: int) -> None:
        kind = self.dice.choice(("come", "come", "come", "go", "slice", "refuse"))
        if kind == "come" or not self.pods:
            claims = World(self.dice.randrange(10**6)).claims if self.dice.random() < 0.6 else self.case.claims
            names = {one["metadata"]["name"] for one in self.case.classes}
            if all(ask["deviceClassName"] in names for one in claims for ask in asks(one)):
                self.pods[f"p{at}"] = claims
                self.world.ask(f"p{at}", *claims)
        elif kind == "go":
            name = self.dice.choice(sorted(self.pods))
            del self.pods[name]
            self.world.delete_pod(name)
        elif kind == "slice" and self.case.slices:
            one = self.dice.choice(self.case.slices)
            if one["metadata"]["name"] in self.world.slices:
                self.world.withdraw("ResourceSlice", one["metadata"]["name"])
            else:
                self.publish(one)
        else:
            once = [True]
            self.world.refuse_claim = lambda bind: bool(once) and once.pop()
        self.world.settle(4)

    def wrong(self) -> Iterator[str]:
        held = self.world.claims
        yield from self.world.engine.state.device_claims.validate()
        published = list(self.world.slices.values())
        for name, claims in self.pods.items():
            mine = [f"default/{name}-c{at}" for at in range(len(claims))]
            others = self.in_use(mine)
            placed = bool(self.world.node_of(name))
            if placed != all(allocation(held[key]) for key in mine):
                yield f"{name}: placed {placed}, and its claims are {[allocation(held[key]) for key in mine]}"
            if placed or self.was_lost(others):
                continue
            case = SimpleNamespace(slices=published, classes=self.case.classes, claims=claims, in_use=others, seen=self.seen)
            judge = Judge(case)  # type: ignore[arg-type]
            if judge.is_possible() and not judge.throws():
                yield f"{name} may have its devices and is asleep: {self.world.condition(name)}"

    def in_use(self, mine: list[str]) -> list[Json]:
        """Return what other claims hold; adminAccess holds nothing."""
        found = []
        for key, one in self.world.claims.items():
            if key not in mine and allocation(one):
                one = copy.deepcopy(one)
                devices = one["status"]["allocation"]["devices"]
                devices["results"] = [result for result in devices["results"] if not result.get("adminAccess")]
                found.append(one)
        return found

    def was_lost(self, others: list[Json]) -> bool:
        """Return whether a device is in use that no slice published so far."""
        known = {(one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"])
                 for one in self.seen for device in one["spec"].get("devices", ())}  # fmt: skip
        results = (result for one in others for result in allocation(one)["devices"]["results"])  # type: ignore[index]
        return any((one["driver"], one["pool"], one["device"]) not in known for one in results)

    def judged_when_given(self) -> Iterator[str]:
        """Of pods that got their devices in the last step: what the judge says of them, with all others in use."""
        published = list(self.world.slices.values())
        for bind in self.world.bindings:
            claims = self.pods.get(bind.name)
            if claims is None:
                continue
            mine = [f"default/{bind.name}-c{at}" for at in range(len(claims))]
            if not all(allocation(self.world.claims[key]) for key in mine):
                continue
            others = self.in_use(mine)
            if self.was_lost(others):
                continue
            case = SimpleNamespace(slices=published, classes=self.case.classes, claims=claims, in_use=others, seen=self.seen)
            said = Judge(case).wrong([allocation(self.world.claims[key]) for key in mine])  # type: ignore[arg-type,misc]
            if said:
                yield f"{bind.name}: {said}"
        self.world.bindings.clear()


def asks(claim: Json) -> Iterator[Json]:
    for request in claim["spec"]["devices"]["requests"]:
        yield from (request["exactly"],) if "exactly" in request else request["firstAvailable"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_of_claims_is_accepted_by_the_judge_at_each_step(seed: int) -> None:
    history = History(seed)
    for at in range(8):
        history.step(at)
        assert list(history.wrong()) == []
        assert list(history.judged_when_given()) == []
