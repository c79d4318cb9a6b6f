"""The steps of the plane with queues that claim back: one lends what it deserves and has it back, and one gives nothing."""

from __future__ import annotations

from random import Random

from kit.fake_cluster import Json
from tests.property.history.registry import Op, View, kind
from tests.property.plane.kinds import BOUNDED, RECLAIMING, WHOLE, _asking, _create, make
from tests.property.plane.node import LIFE, NUMBER

OWNER, LENDER, KEPT = "owner", "lender", "kept"
QUEUES: dict[str, Json] = {
    OWNER: {"deserved": {NUMBER: "2"}}, LENDER: {"deserved": {NUMBER: "2"}}, KEPT: {"reclaimable": False},
}  # fmt: skip
"""Together they deserve the cards that are shared; the last one may only borrow, and nobody claims back from it."""


def _pods(queue: str, number: int, rng: Random) -> list[Json]:
    """Pods that take whole cards."""
    name = f"{queue[0]}{rng.getrandbits(24):06x}"
    found = [make(f"{name}-{at}", rng, queue=queue) for at in range(number)]
    for pod in found:
        _asking(pod, {**WHOLE, NUMBER: rng.choice("1112")})
        pod["spec"]["terminationGracePeriodSeconds"] = rng.choice((0, 0, 3))
    return found


@kind("pods of queues with a share come", 14, RECLAIMING)
def come(view: View, rng: Random) -> list[Op]:
    return [_create("pods", pod) for queue in rng.sample((OWNER, OWNER, LENDER, LENDER, KEPT), rng.choice((1, 2)))
            for pod in _pods(queue, rng.choice((1, 2, 4)), rng)]  # fmt: skip


@kind("a queue wants its share back while nothing befalls anybody", 8, RECLAIMING)
def wanted_back(view: View, rng: Random) -> list[Op]:
    borrower, claimant = rng.choice(((LENDER, OWNER), (OWNER, LENDER), ("default", OWNER), (KEPT, LENDER)))
    lent, wanted = _pods(borrower, 4, rng), _pods(claimant, rng.choice((1, 2, 4)), rng)
    for pod in (*lent, *wanted):
        pod["metadata"]["annotations"].pop(LIFE, None)
    return [{"do": "calm"}, {"do": "wait", "seconds": 40.0}, *(_create("pods", pod) for pod in lent),
            {"do": "wait", "seconds": 6.0}, *(_create("pods", pod) for pod in wanted), {"do": "wait", "seconds": 12.0}]


@kind("two queues want all cards for pods that are made anew", 2, RECLAIMING)
def rivals(view: View, rng: Random) -> list[Op]:
    """Whoever is told to go comes again, and may not claim back what is another's share."""
    ops: list[Op] = []
    for queue in rng.sample((OWNER, LENDER, BOUNDED), 2):
        [pod] = _pods(queue, 1, rng)
        name = pod["metadata"]["name"]
        notes = {key: text for key, text in pod["metadata"]["annotations"].items() if key != LIFE}
        template = {"metadata": {"labels": {"app": name}, "annotations": notes}, "spec": {
            "schedulerName": "volcano", "containers": pod["spec"]["containers"], "terminationGracePeriodSeconds": 0}}  # fmt: skip
        spec = {"replicas": 4, "selector": {"matchLabels": {"app": name}}, "template": template}
        ops += [_create("deployments", {"apiVersion": "apps/v1", "kind": "Deployment",
                                        "metadata": {"name": name, "namespace": "default"}, "spec": spec}),
                {"do": "wait", "seconds": rng.choice((0.3, 8.0))}]  # fmt: skip
    return ops


@kind("a queue deserves more or less", 3, RECLAIMING)
def deserves(view: View, rng: Random) -> list[Op]:
    return [{"do": "queue", "queue": rng.choice((OWNER, LENDER)), "spec": {"deserved": {NUMBER: rng.choice("1223")}}}]


@kind("whoever leads is lost while a queue claims back", 6, RECLAIMING)
def lost_amid(view: View, rng: Random) -> list[Op]:
    death = {"do": "kill", "writes": rng.choice((0, 1)), "done": rng.random() < 0.5,
             "only": rng.choice(("DELETE pods", "DELETE pods", "POST pods binding")), "at once": False}  # fmt: skip
    refusal = {"do": "fault", "only": "DELETE pods", "code": (code := rng.choice((403, 409, 429, 500, 0))),
               "count": rng.choice((1, 3)), "done": code in (0, 500) and rng.random() < 0.5}  # fmt: skip
    befall = rng.choice((death, refusal))
    return [*(_create("pods", pod) for pod in _pods(LENDER, 4, rng)), {"do": "wait", "seconds": rng.choice((3.0, 8.0))},
            *({**befall, "process": f"scheduler {which}"} for which in "ab"),
            *(_create("pods", pod) for pod in _pods(OWNER, 2, rng)), {"do": "wait", "seconds": 5.0}]
