"""Clusters that are full, and configurations by which room is made in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kit.device_world import A100, card
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.room_worlds import room_conf
from kit.scheduler_confs import conf

Json = dict[str, Any]

ACTIONS = "enqueue, allocate, preempt, reclaim, backfill"
WHOLE_GANGS = room_conf(ACTIONS, spares_gangs="true", more="  - name: nodeorder\n")
"""Gangs never fall under their minimum (and a pod of its own is a gang of one)."""
BUNDLES = room_conf(ACTIONS, spares_gangs="false", more="  - name: nodeorder\n")
"""As upstream's default: plugin gang has no say in who is preempted."""
SHARES = conf(["priority", {"gang": {"enableReclaimable": False}}, "conformance"], ["predicates", "%s"],
              actions="enqueue, allocate, reclaim, backfill")
"""Queues get their shares back, by the plugin that is put in."""


def full(world: World, *objects: Json) -> World:
    """Everything that comes runs."""
    world.add(*objects)
    world.settle(2)
    run(world)
    return world


def run(world: World) -> None:
    for obj in list(world.pods.values()):
        if obj["spec"].get("nodeName") and obj["status"].get("phase") == "Pending":
            world.set_phase(obj["metadata"]["name"], "Running", obj["metadata"]["namespace"])


def gone(world: World) -> set[str]:
    return {effect.name for effect in world.evictions}


def gang(name: str, size: int, minimum: int | None = None, *, priority: str = "", cards: int = 1, **spec: Any) -> Iterable[Json]:
    yield group(name, minimum=size if minimum is None else minimum, priority_class=priority)
    yield from (pod(f"{name}-w-{i}", group=name, cards=cards, mib=8000, **spec) for i in range(size))


MIG = {"volcano.sh/vgpu-mode": "mig"}


def mig_node(name: str, cards: int = 1, *, places: bool = False) -> Json:
    """``places``: its plugin says that it cuts slices anywhere."""
    register = "".join(card(f"GPU-{name}-{at}", 40960, kind=A100, mode="mig", places=places) for at in range(cards))
    return node(name, cards=cards, mib=40960, register=register)


def one_card(conf: str = BUNDLES) -> World:
    return full(World(conf), node("n1", cards=1, mib=8000), pod("low", mib=8000, priority=1))
