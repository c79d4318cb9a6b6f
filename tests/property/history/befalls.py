"""Steps that befall the scheduler: time, restarts, watches that break, Bindings that are refused, annotations that are forged."""

from __future__ import annotations

from random import Random

from kit.fake_cluster import Store
from tests.property.history.legacy_card_rules import INDEX
from tests.property.history.registry import DAEMON, ENGINE, Op, View, kind, patch

from pumice.audit.card_rules import HELD


@kind("time passes", 8)
def time_passes(view: View, rng: Random) -> list[Op]:
    return [{"do": "wait", "seconds": rng.choice((0.5, 2.0, 5.0, 70.0))}]


@kind("the scheduler starts anew", 2)
def restarts(view: View, rng: Random) -> list[Op]:
    return [{"do": "restart"}]


@kind("the watches break", 2)
def deaf(view: View, rng: Random) -> list[Op]:
    """Until the relist nothing is heard: what was deleted and made anew meanwhile comes as one change of uid."""
    return [{"do": "deaf"}]


@kind("everything is listed again", 3)
def relist(view: View, rng: Random) -> list[Op]:
    return [{"do": "relist"}]


@kind("the watches repeat themselves", 1, ENGINE)
def again(view: View, rng: Random) -> list[Op]:
    return [{"do": "again"}]


@kind("the watch tells of something long past", 2, ENGINE)
def stale(view: View, rng: Random) -> list[Op] | None:
    found = view.pods()
    return [{"do": "stale", "key": Store.key(rng.choice(found)), "unbound": rng.random() < 0.5}] if found else None


@kind("Bindings are refused", 2, ENGINE)
def refused(view: View, rng: Random) -> list[Op]:
    return [{"do": "refuse", "every": rng.randint(1, 3)}, {"do": "wait", "seconds": 0.25}, {"do": "refuse", "every": 0}]


@kind("evictions are refused", 2, ENGINE)
def spared(view: View, rng: Random) -> list[Op]:
    return [{"do": "spare", "every": rng.choice((0, 1, 2))}]


@kind("cycles have hardly any time", 2, ENGINE)
def hurry(view: View, rng: Random) -> list[Op]:
    return [{"do": "hurry", "cycles": rng.choice((1, 2, 5)), "ticks": rng.choice((0, 5, 20))}]


@kind("an owner empties the assignment of a running pod", 1)
def emptied(view: View, rng: Random) -> list[Op] | None:
    reported = [(p, key) for p in view.live(bound=True) for key in (HELD, INDEX)
            if p["status"]["phase"] == "Running" and p["metadata"]["annotations"].get(key)]  # fmt: skip
    if not reported:
        return None
    pod, key = rng.choice(reported)
    return [{**patch(pod, {"metadata": {"annotations": {key: ""}}}), "if": "bound", "doubt": ""}]


@kind("an owner forges an assignment", 1)
def forged(view: View, rng: Random) -> list[Op] | None:
    found, nodes = view.live(bound=True), sorted(view.tables["Node"])
    if not found or not nodes:
        return None
    uuid = f"GPU-{rng.choice(nodes)}-{rng.randrange(2)}"
    text = rng.choice((f"{uuid},NVIDIA,9000,10:", f"{uuid}[0-0],NVIDIA,100,0:", "nonsense", f"{uuid},NVIDIA,-1,x:", ",,,:;;:",
                        f"{uuid},NVIDIA,99999999999999999999,0:"))  # fmt: skip
    return [{**patch(rng.choice(found), {"metadata": {"annotations": {HELD: text}}}), "if": "bound", "doubt": uuid}]


@kind("the API server cannot be reached", 2, DAEMON)
def outage(view: View, rng: Random) -> list[Op]:
    return [{"do": "outage", "seconds": rng.choice((0.5, 3.0, 7.0, 40.0, 180.0))}]


@kind("Bindings fail", 4, DAEMON)
def fail(view: View, rng: Random) -> list[Op]:
    """Refused for good, answered by errors, or not answered at all; some of them carried out all the same."""
    code = rng.choice((403, 404, 409, 422, 429, 500, 503, 0, 0))
    return [{"do": "fault", "code": code, "count": rng.choice((1, 1, 2, 5)),
             "done": code in (0, 500, 503) and rng.random() < 0.5}]  # fmt: skip


@kind("deletions fail", 2, DAEMON)
def deletions_fail(view: View, rng: Random) -> list[Op]:
    return [{"do": "spared", "code": rng.choice((403, 403, 429, 500, 0)), "count": rng.choice((1, 1, 2, 5))}]


@kind("the scheduler is killed", 2, DAEMON)
def killed(view: View, rng: Random) -> list[Op]:
    """Where it stands, or between a decision and the answer to it."""
    return [{"do": "kill", "amid": rng.random() < 0.7}]


@kind("the clock is set", 2, DAEMON)
def clock(view: View, rng: Random) -> list[Op]:
    return [{"do": "clock", "seconds": rng.choice((-3600.0, -5.0, 30.0, 7200.0))}]
