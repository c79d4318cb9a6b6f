"""The steps of a plane with monitors: important programs beside others, and what befalls monitors."""

from __future__ import annotations

from random import Random

from tests.property.history.registry import Op, View, kind
from tests.property.plane import monitor_judge
from tests.property.plane.kinds import MONITORED, NODES, URGENT, _asking, _create, make
from tests.property.plane.node import LIFE

EFFECTS = ("write feedback", "hold back", "hold back", "sweep folders")
BUSY = (0.0, 5.0, 30.0, 300.0)
"""Seconds for which a program launches kernels."""


def _monitor(rng: Random) -> str:
    return f"monitor {rng.choice(NODES)}"


@kind("important programs work beside others", 10, MONITORED)
def important_come(view: View, rng: Random) -> list[Op]:
    name = f"i{rng.getrandbits(24):06x}"
    found = [make(f"{name}-{at}", rng, **({"priorityClassName": URGENT} if at < 2 else {})) for at in range(rng.choice((3, 5)))]
    for at, pod in enumerate(found):
        _asking(pod, {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(rng.choice((1000, 3000)))})
        pod["metadata"]["annotations"][LIFE] = str(rng.choice((15, 60, 1000)))
        if at < 2 or rng.random() < 0.3:
            pod["spec"]["containers"][0]["env"] = [monitor_judge.FIRST]
    return [*(_create("pods", pod) for pod in found), {"do": "wait", "seconds": rng.choice((4.0, 12.0))}, *killed(view, rng)]


@kind("a monitor is killed between two of its effects", 6, MONITORED)
def killed(view: View, rng: Random) -> list[Op]:
    return [{"do": "kill", "process": _monitor(rng), "writes": rng.choice((0, 0, 1, 2, 5)), "done": rng.random() < 0.5,
             "only": rng.choice((*EFFECTS, "")), "at once": rng.random() < 0.3}]  # fmt: skip


@kind("something befalls a monitor", 5, MONITORED)
def befallen(view: View, rng: Random) -> list[Op]:
    process = _monitor(rng)
    return [rng.choice((
        {"do": "end", "process": process},
        {"do": "away", "process": process, "seconds": rng.choice((6.0, 60.0)), "lists": rng.random() < 0.5},
        {"do": "hang up", "process": process, "forget": rng.random() < 0.5, "seconds": rng.choice((0.0, 30.0))},
        {"do": "stop", "process": process, "seconds": rng.choice((12.0, 40.0))},
    ))]  # fmt: skip
