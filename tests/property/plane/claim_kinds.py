"""The steps of the plane with claims: pods that have cards by claim among those with shares, and what befalls the driver."""

from __future__ import annotations

from random import Random
from typing import Any

from kit import objects
from kit.fake_cluster import Json, Store
from tests.property.history.registry import Op, View, kind
from tests.property.plane.kinds import CLAIMS, LIFE, NEVER, NODES, _create, _emptied, _some, filled, make, pods_come

FIELD = "gpu.pumice.io"


def _asked(memory: str, cores: str) -> Json:
    return {"deviceClassName": FIELD, "capacity": {"requests": {"memory": memory, "cores": cores}}}


ASKS: dict[str, Json] = {
    "small": _asked("2000Mi", "10"), "half": _asked("3000Mi", "50"), "most": _asked("12000Mi", "25"),
    "all": _asked("16000Mi", "100"),
    "slice": {"deviceClassName": f"mig.{FIELD}", "selectors": [
        {"cel": {"expression": f'device.attributes["{FIELD}"].profile.startsWith("1g.")'}}]},
    "large-slice": {"deviceClassName": f"mig.{FIELD}", "capacity": {"requests": {"memory": "20Gi"}}},
}  # fmt: skip
"""What the templates ask for, by their names."""
CLASSES = {
    name: [{"cel": {"expression": f'device.driver == "{FIELD}" && device.attributes["{FIELD}"].type == "{type_}"'}}]
    for name, type_ in ((FIELD, "shared-gpu"), (f"mig.{FIELD}", "mig"))
}
STEPS = ("write claims", "write claims", "write claim files", "remove claim files", "POST resourceslices", "make slice",
         "DELETE resourceslices", "fill slice")  # fmt: skip
"""The effects of a driver of claims."""
WRITES = ("PUT resourceclaims", "PUT resourceclaims status", "PUT resourceclaims status", "POST pods binding")
"""What a scheduler does for a pod with claims."""


def spec_of(asked: Json) -> Json:
    return {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}


def by_claim(name: str, rng: Random, *, template: str = "", claim: str = "", **more: Any) -> Json:
    """A pod of one or two containers that have one claim, of a template or a named one."""
    made = make(name, rng, **more)
    made["metadata"]["annotations"].pop("volcano.sh/vgpu-mode", None)
    for container in made["spec"]["containers"]:
        container["resources"] = {"claims": [{"name": "gpu"}]}
    entry = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    made["spec"]["resourceClaims"] = [{"name": "gpu", **entry}]
    return made


def _driver(rng: Random) -> str:
    return f"driver {rng.choice(NODES)}"


@kind("pods come that have cards by claim", 14, CLAIMS)
def claims_come(view: View, rng: Random) -> list[Op]:
    name = f"q{rng.getrandbits(24):06x}"
    templates = rng.choices(list(ASKS), (3, 4, 2, 2, 3, 1), k=rng.choice((1, 2, 3, 5)))
    return [_create("pods", by_claim(f"{name}-{at}", rng, template=template)) for at, template in enumerate(templates)]


@kind("two pods come that share a claim", 4, CLAIMS)
def shared_claim(view: View, rng: Random) -> list[Op]:
    name = f"o{rng.getrandbits(24):06x}"
    claim = {"metadata": {"name": name, "namespace": "default"}, "spec": spec_of(ASKS[rng.choice(list(ASKS))])}
    ops = [_create("pods", by_claim(f"{name}-{at}", rng, claim=name)) for at in range(2)]
    ops.insert(rng.choice((0, 0, 1, 2)), _create("resourceclaims", claim))
    return ops


@kind("a gang comes whose pods have cards by claim", 8, CLAIMS)
def gang_by_claim(view: View, rng: Random) -> list[Op]:
    """Every third wants one card more than there are that are shared: none of it may ever have a node."""
    never = rng.random() < 1 / 3
    name, size = f"{NEVER if never else 'l'}{rng.getrandbits(24):06x}", 5 if never else rng.randint(2, 4)
    group = objects.group(name, minimum=size if never else rng.randint(2, size))
    group["metadata"] = {"name": name, "namespace": "default"}
    del group["status"]
    templates = ["all"] * size if never or rng.random() < 0.3 else rng.choices(list(ASKS), (3, 4, 2, 2, 2, 1), k=size)
    pods = [by_claim(f"{name}-{at}", rng, template=template, group=name, labels={"gang": name})
            for at, template in enumerate(templates)]  # fmt: skip
    return [_create("podgroups", group), *(_create("pods", pod) for pod in pods)]


@kind("one more pod comes to a claim that is there", 3, CLAIMS)
def joins(view: View, rng: Random) -> list[Op] | None:
    found = _some(view, rng, "ResourceClaim", lambda claim: not claim["metadata"].get("ownerReferences"))
    if found is None:
        return None
    return [_create("pods", by_claim(f"k{rng.getrandbits(24):06x}", rng, claim=found["metadata"]["name"]))]


@kind("a claim on the plane is deleted", 4, CLAIMS)
def claim_goes(view: View, rng: Random) -> list[Op] | None:
    found = _some(view, rng, "ResourceClaim")
    return None if found is None else [{"do": "delete", "kind": "ResourceClaim", "key": Store.key(found), "now": False}]


@kind("pods with shares and pods with claims come together", 6, CLAIMS)
def together(view: View, rng: Random) -> list[Op]:
    ops = [*pods_come(view, rng), *claims_come(view, rng)]
    rng.shuffle(ops)
    return ops


@kind("pods with claims come to an empty cluster, and at their heels pods with shares for all cards", 8, CLAIMS)
def at_their_heels(view: View, rng: Random) -> list[Op]:
    first, second = rng.sample((claims_come(view, rng), filled(view, rng)), 2)
    pause = {"do": "wait", "seconds": rng.choice((0.05, 0.3, 1.0))}
    return [*_emptied(view), *first, pause, *second, {"do": "wait", "seconds": 3.0}]


@kind("a driver of claims dies between two of its effects while pods come", 8, CLAIMS)
def driver_dies(view: View, rng: Random) -> list[Op]:
    deaths: list[Op] = [{"do": "kill", "process": f"driver {node}", "writes": rng.choice((0, 0, 1, 2)),
                         "done": rng.random() < 0.5, "only": rng.choice(STEPS), "at once": False} for node in NODES]  # fmt: skip
    after = rng.choice(([], [_gone(view, rng)]))
    return [*deaths, *claims_come(view, rng), {"do": "wait", "seconds": rng.choice((1.0, 3.0, 8.0))}, *(op for op in after if op),
            {"do": "wait", "seconds": rng.choice((1.0, 8.0))}]  # fmt: skip


def _gone(view: View, rng: Random) -> Op | None:
    found = _some(view, rng, "Pod", lambda pod: bool(pod["spec"].get("resourceClaims")))
    return found and {"do": "delete", "kind": "Pod", "key": Store.key(found), "now": rng.random() < 0.5}


@kind("something befalls a driver of claims", 8, CLAIMS)
def driver_befallen(view: View, rng: Random) -> list[Op]:
    process = _driver(rng)
    death = {"do": "kill", "process": process, "writes": 0, "done": False, "only": "", "at once": True}
    return [rng.choice((
        death, death, death,
        {"do": "end", "process": process},
        {"do": "fault", "process": process, "only": rng.choice(("", *STEPS)), "code": rng.choice((403, 409, 500, 503, 0)),
         "count": rng.choice((1, 2, 5)), "done": False},
        {"do": "away", "process": process, "seconds": rng.choice((6.0, 20.0, 60.0)), "lists": rng.random() < 0.5},
        {"do": "stop", "process": process, "seconds": rng.choice((12.0, 40.0))},
        {"do": "damage book", "node": process.rpartition(" ")[2], "text": rng.choice((None, "", "{", "[]"))},
        {"do": "take slices", "node": process.rpartition(" ")[2]}))]  # fmt: skip


@kind("a scheduler is lost or refused amid the writes of a pod with claims", 6, CLAIMS)
def writes_lost(view: View, rng: Random) -> list[Op]:
    only = rng.choice(WRITES)
    befalls: list[dict[str, Any]] = [
        {"do": "kill", "writes": rng.choice((0, 0, 1)), "done": rng.random() < 0.5, "only": only, "at once": False},
        {"do": "fault", "only": only, "code": (code := rng.choice((403, 409, 422, 500, 504, 0))), "count": rng.choice((1, 3, 12)),
         "done": code in (0, 500, 504) and rng.random() < 0.5}]  # fmt: skip
    befall = rng.choice(befalls)
    return [*({**befall, "process": f"scheduler {which}"} for which in "ab"), *claims_come(view, rng),
            {"do": "wait", "seconds": rng.choice((0.3, 3.0, 8.0))}]  # fmt: skip


@kind("pods with claims go at once, and others come for what they had", 4, CLAIMS)
def exchanged(view: View, rng: Random) -> list[Op] | None:
    going = [pod for pod in view.tables["Pod"].values() if pod["spec"].get("resourceClaims")]
    if not going:
        return None
    going = rng.sample(sorted(going, key=Store.key), min(len(going), 3))
    return [*({"do": "delete", "kind": "Pod", "key": Store.key(pod), "now": rng.random() < 0.6} for pod in going),
            *rng.choice((claims_come, pods_come))(view, rng)]  # fmt: skip


__all__ = ["ASKS", "CLASSES", "LIFE", "by_claim", "spec_of"]
