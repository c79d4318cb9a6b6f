"""Worlds whose queues stand under plugin capacity."""

from __future__ import annotations

from typing import Any

from kit.engine_world import Json, World
from kit.objects import node, pod, queue

GPU = "nvidia.com/gpu"


def capacity(*plugins: str, tree: bool = True, actions: str = "enqueue, allocate, backfill", **arguments: Any) -> str:
    """A configuration with plugin capacity after those named."""
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:", *(f"  - name: {name}" for name in plugins), "  - name: capacity"]
    lines += ["    enableHierarchy: true"] if tree else []
    if arguments:
        lines += ["    arguments:", *(f"      {name}: {value}" for name, value in arguments.items())]
    return "\n".join([*lines, "  - name: predicates"]) + "\n"


def gpus(name: str, at: str, count: int = 1, **more: Any) -> Json:
    return pod(name, queue=at, limits={GPU: str(count)}, **more)


def cluster(*objects: Json, conf: str | None = None, of: int = 8) -> World:
    world = World(conf or capacity("gang"))
    world.add(queue("root"), node("n1", extra={GPU: str(of)}), *objects)
    world.settle()
    return world


def running(world: World) -> dict[str, int]:
    """Pods that have a node, by queue."""
    found: dict[str, int] = {}
    for name, where in world.placements().items():
        found[name[0]] = found.get(name[0], 0) + bool(where)
    return found


def departments(**more: Any) -> list[Json]:
    """Two departments: x with teams a and b, y with team c."""
    return [
        queue("x", deserved={GPU: "4"}, **more), queue("y", deserved={GPU: "4"}),
        queue("a", parent="x", deserved={GPU: "2"}), queue("b", parent="x", deserved={GPU: "2"}),
        queue("c", parent="y", deserved={GPU: "4"}),
    ]  # fmt: skip
