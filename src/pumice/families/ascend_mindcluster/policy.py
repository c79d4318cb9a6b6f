"""``pumice.NpuPolicy: expected``: the chip that loses least of what it can still serve, in place of the fullest one.

A chip has few states, so their values are tabulated as they come up.
"""

from __future__ import annotations

from functools import lru_cache

from pumice.families.ascend_mindcluster.chips import after, takes
from pumice.model.hardware.npu_slices import SliceKind, SliceTemplate

CPU = 0.5
"""What an AI CPU that is left counts where a slice of two AI cores is cut: there it goes to the chip that has more of them."""


def loss(kind: SliceKind, template: SliceTemplate, cores: int, cpus: int, state: int) -> float:
    """What a chip with so much left is worth less once the slice is there."""
    lost = value(kind, cores, cpus, state) - value(kind, *after(template, cores, cpus, state))
    return lost - CPU * cpus * (template.cores == 2)


@lru_cache(maxsize=65536)
def value(kind: SliceKind, cores: int, cpus: int, state: int) -> float:
    """What the chip can still serve: places for slices of each template, and the chip as a whole, as the table counts them."""
    return sum(sum(counts[: _room(kind, kind.templates.get(name), cores, cpus, state)]) for name, counts in kind.worth.items())


@lru_cache(maxsize=65536)
def _room(kind: SliceKind, template: SliceTemplate | None, cores: int, cpus: int, state: int) -> int:
    """How many such slices the chip takes yet; None: the chip as a whole."""
    if template is None:
        return int(not state and cores in kind.cpus)
    if not takes(template, cores, cpus, state):
        return 0
    return 1 + _room(kind, template, *after(template, cores, cpus, state))
