"""The state of the node object: nothing is written twice, and what a replaced plugin left there goes away."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Return what another plugin of the same cards leaves on a node when this one takes its place.

    It is taken away only while the kubelet has none of ``alive``, the resource that the other plugin registers.
    """

    alive: str
    resources: tuple[str, ...]
    annotations: tuple[str, ...]

    def of(self, node: Node) -> tuple[dict[str, None], dict[str, None]]:
        """(resources, annotations) to remove."""
        alive = node.status.allocatable.get(self.alive)
        if alive is not None and not _is(alive, 0):
            return {}, {}
        tables = (node.status.capacity, node.status.allocatable)
        return (
            {name: None for name in self.resources if any(name in table for table in tables)},
            {name: None for name in self.annotations if name in node.metadata.annotations},
        )


def holds(node: Node, resource: str, count: int) -> bool:
    """Return whether capacity and allocatable of the node say this much of a resource."""
    return all(_is(table.get(resource), count) for table in (node.status.capacity, node.status.allocatable))


def _is(value: str | int | float | None, count: int) -> bool:
    try:
        return value is not None and parse_quantity(value) == count
    except ValueError:
        return False
