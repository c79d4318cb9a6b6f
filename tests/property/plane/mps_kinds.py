"""The steps of the plane with cards shared by MPS: what befalls control daemons, and the plugin that keeps them."""

from __future__ import annotations

from random import Random

from tests.property.history.registry import Op, View, kind
from tests.property.plane.kinds import SERVED, _asking, _create, make
from tests.property.plane.node import NUMBER

BY_MPS = "n1"
"""The node that shares its cards so."""
EFFECTS = ("start daemon", "start daemon", "bound daemon", "bound daemon", "kill daemon", "quit daemon")


@kind("pods with a share of one card come", 10, SERVED)
def come(view: View, rng: Random) -> list[Op]:
    name = f"v{rng.getrandbits(24):06x}"
    found = [make(f"{name}-{at}", rng) for at in range(rng.choice((2, 4, 6)))]
    for pod in found:
        memory, cores = rng.choice((500, 1000, 4000, 8000)), rng.choice((0, 10, 25, 50))
        amounts = {NUMBER: "1", "volcano.sh/vgpu-memory": str(memory)}
        _asking(pod, amounts | ({"volcano.sh/vgpu-cores": str(cores)} if cores else {}))
    return [_create("pods", pod) for pod in found]


@kind("a control daemon dies or hangs", 8, SERVED)
def daemon_befallen(view: View, rng: Random) -> list[Op]:
    befalls: Op = {"do": "daemon", "node": BY_MPS, "card": rng.randrange(2), "what": rng.choice(("dies", "dies", "hangs"))}
    return [befalls, {"do": "wait", "seconds": rng.choice((0.1, 3.0, 20.0))}, *rng.choice(([], come(view, rng)))]


@kind("a plugin is lost or refused amid what it does with control daemons", 8, SERVED)
def keeper_befallen(view: View, rng: Random) -> list[Op]:
    process, step = f"plugin {BY_MPS}", rng.choice(EFFECTS)
    death: Op = {"do": "kill", "process": process, "writes": rng.choice((0, 0, 1)), "done": rng.random() < 0.5, "only": step,
                 "at once": False}  # fmt: skip
    refusal: Op = {"do": "fault", "process": process, "only": step, "code": 500, "count": rng.choice((1, 2, 8)), "done": False}
    shakes: list[Op] = [{"do": "daemon", "node": BY_MPS, "card": at, "what": rng.choice(("dies", "hangs"))} for at in range(2)]
    end: Op = {"do": "end", "process": process}
    return [rng.choice((death, refusal, end)), *rng.choice(([], shakes)), *come(view, rng),
            {"do": "wait", "seconds": rng.choice((1.0, 8.0))}]  # fmt: skip
