"""``pumice.NpuPolicy: expected``: the chip that loses least of what it can still serve, in place of the fullest one.

A chip has few states, so their values are tabulated as they come up.
"""

from __future__ import annotations

from functools import lru_cache

from pumice.devices.ascend_mindcluster.chips import after, groups_in_use, takes
from pumice.model.hardware.npu import SliceKind, SliceTemplate


def loss(kind: SliceKind, template: SliceTemplate, cores: int, cpus: int, state: int, *, idle: bool) -> float:
    """Return by how much a chip with so much left is worth less once the slice is there. A small slice rather joins many: one of
    them stays anyway, and a chip with few may soon be idle. ``idle``: whether the node has an idle chip, when two cores need not
    do that."""
    lost = value(kind, cores, cpus, state) - value(kind, *after(template, cores, cpus, state))
    groups: int = groups_in_use(state)
    return lost - kind.company.get(template.name, (0.0, 0.0))[idle] * groups


@lru_cache(maxsize=65536)
def value(kind: SliceKind, cores: int, cpus: int, state: int) -> float:
    """Return what the chip can still serve: places for slices of each template, and the chip as a whole, as the table counts
    them, and what it counts with so many vGroups in use."""
    places = sum(sum(counts[: _room(kind, kind.templates.get(name), cores, cpus, state)]) for name, counts in kind.worth.items())
    groups: int = groups_in_use(state)
    return places + kind.in_use[groups]


@lru_cache(maxsize=65536)
def _room(kind: SliceKind, template: SliceTemplate | None, cores: int, cpus: int, state: int) -> int:
    """How many such slices the chip takes yet; None: the chip as a whole."""
    if template is None:
        return int(not state and cores in kind.cpus)
    if not takes(template, cores, cpus, state):
        return 0
    return 1 + _room(kind, template, *after(template, cores, cpus, state))
