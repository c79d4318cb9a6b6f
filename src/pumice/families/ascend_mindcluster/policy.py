"""``pumice.NpuPolicy: expected``: the chip that loses least of what it can still serve, in place of the fullest one.

A chip has few states, so their values are exact and remembered.
"""

from __future__ import annotations

from functools import cache, lru_cache

from pumice.families.ascend_mindcluster.chips import after, takes
from pumice.families.remaining import remaining
from pumice.model.hardware.npu_slices import SliceKind, SliceTemplate


def loss(kind: SliceKind, template: SliceTemplate, cores: int, cpus: int, state: int) -> float:
    """The AI cores that a chip with so much left can be expected to serve less once the slice is there; the same for all chips
    where the fullest one is to be taken."""
    if template.name in _on_the_fullest(kind):
        return 0.0
    return value(kind, cores, cpus, state) - value(kind, *after(template, cores, cpus, state))


@cache
def _on_the_fullest(kind: SliceKind) -> frozenset[str]:
    """Slices of two AI cores and as many AI CPUs, in whose place a smaller one may be cut: where pods ask for them it is AI CPUs
    that run out, and those left in small pieces go further (``benchmarks/npu_streams.py``)."""
    return frozenset(row[0].name for (cores, _), row in kind.high.items() if cores == 2 and len(row) > 1)


@lru_cache(maxsize=65536)
def value(kind: SliceKind, cores: int, cpus: int, state: int) -> float:
    """The AI cores that the chip can still serve, over all rows of the table by which requests are cut, each as frequent as the
    others, and whole chips."""
    rows = [templates[0] for level in (kind.low, kind.high) for templates in level.values()]
    whole = (None, cores, 2.0)  # one for each level, as for every size
    return remaining(
        (whole, *((template, template.cores, 1.0) for template in rows)), lambda row: _room(kind, row, cores, cpus, state)
    )


@lru_cache(maxsize=65536)
def _room(kind: SliceKind, template: SliceTemplate | None, cores: int, cpus: int, state: int) -> int:
    """How many such slices the chip takes yet; None: the chip as a whole."""
    if template is None:
        return int(not state and cores in kind.cpus)
    if not takes(template, cores, cpus, state):
        return 0
    return 1 + _room(kind, template, *after(template, cores, cpus, state))
