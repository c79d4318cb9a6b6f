"""Whatever happens while nodes are held for gangs: for no longer than is allowed, no node for two gangs, none again too soon,
none for a gang that is gone or has its places; and nobody waits for ever.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from kit.engine_world import World
from kit.objects import group, node, pod, priority_class
from kit.scheduler_confs import conf, sharing

from pumice.wire.times import stamp

HISTORIES = int(os.environ.get("PUMICE_HELD_HISTORIES", "40"))
LIMIT = 30.0
TICK = 0.25
CONF = conf(["priority", {"gang": {"pumice.gangReservation": '"30s"'}}], ["predicates", sharing("VGPU")])


class Watched(World):
    """Looks after every cycle at who holds what."""

    def __init__(self, rng: Random) -> None:
        super().__init__(CONF, seed=rng.randrange(10**6))
        self.draw = rng
        self.serial = self.reservations = 0
        self.held: dict[str, tuple[str, float]] = {}
        """Which gang each node is held for, and since when."""
        self.open_until: dict[str, float] = {}
        self.add(priority_class("high", 10))
        for number in range(rng.randint(2, 4)):
            self.add(node(f"n{number}", cards=2, mib=8000))

    def forget(self) -> None:
        """Another scheduler: for how long nodes were open it does not know."""
        self.engine = self.restarted()
        self.held, self.open_until = {}, {}

    def check(self) -> None:
        super().check()
        now: dict[str, tuple[str, float]] = {}
        for found in self.engine.state.reservations.held.values():
            assert found.until - found.since == LIMIT
            assert found.since <= self.now <= found.until
            assert found.job.key in self.groups
            assert not all(self.pods[f"default/{task.name}"]["spec"].get("nodeName") for task in found.job.tasks.values())
            for name in found.nodes:
                assert name not in now, "one node, two gangs"
                now[name] = found.job.key, found.since
        for name, (key, since) in self.held.items():
            if now.get(name) != (key, since):
                self.open_until[name] = self.now + (self.now - since)
        for name, mine in now.items():
            if self.held.get(name) != mine and name in self.open_until:
                assert self.now >= self.open_until[name], "held again too soon"
        self.reservations += len({key for key, _ in now.values()} - {key for key, _ in self.held.values()})
        self.held = now

    def come(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            obj["metadata"]["creationTimestamp"] = stamp(self.now)
        self.add(*objects)

    def step(self) -> None:
        self.serial += 1
        running = sorted(o["metadata"]["name"] for o in self.pods.values() if o["spec"].get("nodeName"))
        match self.draw.choice(("pod", "pod", "pod", "gang", "end", "end", "end", "drop", "restart", "node", "wait")):
            case "pod":
                shape = {"cards": self.draw.choice((1, 1, 2)), "priority": self.draw.choice((0, 0, 10))}
                self.come(pod(f"s{self.serial}", mib=8000, **shape))
            case "gang":
                size, name = self.draw.randint(2, 5), f"g{self.serial}"
                made = group(name, minimum=size, priority_class=self.draw.choice(("", "", "high")))
                cards = self.draw.choice((1, 2))
                self.come(made, *(pod(f"{name}-w-{i}", group=name, cards=cards, mib=8000) for i in range(size)))
            case "end" if running:
                self.delete_pod(self.draw.choice(running))
            case "drop" if self.groups:
                self.drop(self.draw.choice(sorted(self.groups)))
            case "restart" if self.draw.random() < 0.3:
                self.forget()
            case "node" if self.draw.random() < 0.3:
                self.add(node(f"n{self.serial}", cards=2, mib=8000))
            case "wait":
                self.settle(self.draw.choice((5, 20, 40)))
        self.settle(self.draw.choice((0.25, 1, 4)))

    def drop(self, key: str) -> None:
        """A gang with its pods."""
        for name in [name for name in self.pods if name.startswith(f"{key}-w-")]:
            self.remove("Pod", name)
        self.remove("PodGroup", key)


def test_nodes_are_held_for_a_while_and_nobody_waits_for_ever() -> None:
    seen = 0
    for seed in range(HISTORIES):
        world = Watched(Random(f"held {seed}"))
        for _ in range(60):
            world.step()
        for _ in range(40):
            waiting = [obj for obj in world.pods.values() if not obj["spec"].get("nodeName")]
            if not any(obj["metadata"]["name"].startswith("s") for obj in waiting):
                break
            for obj in [obj for obj in world.pods.values() if obj["spec"].get("nodeName")]:
                world.delete_pod(obj["metadata"]["name"])
            world.settle(LIMIT / 4)
        else:
            raise AssertionError(f"seed {seed}: small pods wait behind gangs for ever")
        seen += world.reservations
    assert seen > HISTORIES, "nodes were held for many gangs"
