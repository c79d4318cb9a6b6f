"""Steps of claims of devices: drivers publish, pods come with claims of their own and of others, and what befalls all of them."""

from __future__ import annotations

from random import Random

from kit import claims as words
from kit import objects
from kit.fake_cluster import Json
from tests.property.history.pods import SPACES, make
from tests.property.history.registry import ENGINE, Op, View, anew, create, delete, kind, patch

SHARED = ("shared-0", "shared-1")
"""Claims that anybody may name."""
CLASSES: dict[str, Json] = {
    "gpu": {"selectors": [{"cel": {"expression": "!device.allowMultipleAllocations"}}]},
    "part": {"selectors": [{"cel": {"expression": "device.allowMultipleAllocations"}}]},
    "any": {},
}


def _asks(rng: Random) -> list[Json]:
    """The requests of a claim."""
    amounts = {"memory": rng.choice(("20Gi", "50Gi", "80Gi")), "cores": rng.choice(("10", "50"))}
    part = {"deviceClassName": "part", "capacity": {"requests": amounts}}
    whole = {"deviceClassName": "gpu"}
    return rng.choice((
        [{"name": "g", "exactly": whole}], [{"name": "g", "exactly": whole}], [{"name": "g", "exactly": part}],
        [{"name": "g", "exactly": part}], [{"name": "g", "exactly": {**whole, "count": 2}}],
        [{"name": "a", "exactly": part}, {"name": "b", "exactly": part}],
        [{"name": "g", "firstAvailable": [{"name": "one", **whole}, {"name": "two", **part}]}],
        [{"name": "g", "exactly": {"deviceClassName": "any"}}],
        [{"name": "g", "exactly": {**whole, "allocationMode": "All"}}],
        [{"name": "g", "exactly": {**whole, "adminAccess": True}}],
    ))  # fmt: skip


def claim(name: str, space: str, rng: Random) -> Json:
    meta = {"name": name, "namespace": space}
    return {"kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": _asks(rng)}}}


def slices(node: str, rng: Random, generation: int = 1) -> list[Json]:
    """The pool of a node: whole cards, shared ones, or a card in both worlds on one counter set."""
    where = {"nodeName": node, "pool": node, "generation": generation}
    match rng.randrange(4):
        case 0:
            devices = [words.device(f"card-{at}") for at in range(rng.choice((1, 2, 3)))]
            made = [words.published(*devices, name=f"{node}-0", **where)]
        case 1:
            made = [words.published(*(words.shared_card(f"share-{at}") for at in range(rng.choice((1, 2)))), name=f"{node}-0",
                                    **where)]  # fmt: skip
        case _:
            drawn = [{"counterSet": "card", "counters": {"memory": {"value": "80Gi"}}}]
            devices = [words.device("whole", "80Gi"), words.shared_card("share", consumesCounters=drawn),
                       words.device("p0", "40Gi"), words.device("p1", "40Gi")]  # fmt: skip
            rng.shuffle(devices)
            made = [words.published(*devices[: rng.choice((2, 3, 4))], name=f"{node}-0", slices=2, **where),
                    words.published(name=f"{node}-1", slices=2, sharedCounters=[words.COUNTERS], **where)]  # fmt: skip
    if rng.random() < 0.7:
        made = [_on_cards(one, node, rng) for one in made]
    return [{"kind": "ResourceSlice", **one} for one in made]


def _on_cards(slice_: Json, node: str, rng: Random) -> Json:
    """The slice with the node's cards, which annotated pods may have shares of: a device each, or parts of one."""
    devices, parts = slice_["spec"]["devices"], any(device["name"] == "share" for device in slice_["spec"]["devices"])
    made = []
    for at, device in enumerate(devices):
        card = {"string": f"GPU-{node}-{0 if parts else at}"}
        own = {"uuid": {"string": f"MIG-{node}-{at}"}, "parentUUID": card} if device["name"].startswith("p") else {"uuid": card}
        own = {f"{words.DRIVER}/{key}": value for key, value in own.items()} if rng.random() < 0.2 else own
        made.append({**device, "attributes": own})
    return {**slice_, "spec": {**slice_["spec"], "devices": made}}


def _of_pool(view: View, node: str) -> list[Json]:
    return [one for one in view.all("ResourceSlice") if one["spec"]["pool"]["name"] == node]


def beginning(nodes: list[str], rng: Random) -> list[Op]:
    """Classes, a pool on each of these nodes, and claims that anybody may name."""
    classes = [{"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec} for name, spec in CLASSES.items()]
    pools = [one for node in nodes for one in slices(node, rng)]
    return [create(one) for one in (*classes, *pools, *(claim(name, space, rng) for name in SHARED for space in SPACES))]


@kind("a driver publishes", 5, ENGINE)
def published(view: View, rng: Random) -> list[Op] | None:
    """The first time, or anew under another generation: whole, or by halves with the cluster going on in between."""
    nodes = sorted(view.tables["Node"])
    if not nodes:
        return None
    node = rng.choice(nodes)
    before = _of_pool(view, node)
    generation = max((one["spec"]["pool"]["generation"] for one in before), default=0) + rng.choice((1, 1, 1, 0))
    ops: list[Op] = [create({"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}) for name, spec in CLASSES.items()
                     if name not in view.tables["DeviceClass"]]  # fmt: skip
    made = slices(node, rng, max(1, generation))
    if rng.random() < 0.2:
        made = made[: rng.randrange(len(made) + 1)]
    ops += (delete(one) for one in before)
    if rng.random() < 0.2:
        ops.append({"do": "wait", "seconds": 1.0})
    return ops + [create(one) for one in made]


@kind("a slice goes", 1, ENGINE)
def slice_goes(view: View, rng: Random) -> list[Op] | None:
    found = view.all("ResourceSlice")
    return [delete(rng.choice(found))] if found else None


@kind("a device is tainted or freed", 1, ENGINE)
def device_tainted(view: View, rng: Random) -> list[Op] | None:
    found = [one for one in view.all("ResourceSlice") if one["spec"].get("devices")]
    if not found:
        return None
    one = rng.choice(found)
    taints = rng.choice(([], [{"key": "sick", "effect": "NoSchedule"}], [{"key": "sick", "effect": "NoExecute"}]))
    devices = [{**device, "taints": taints} if at == 0 else device for at, device in enumerate(one["spec"]["devices"])]
    return [patch(one, {"spec": {"devices": devices}})]


@kind("a device class goes, changes or comes back", 1, ENGINE)
def class_changes(view: View, rng: Random) -> list[Op] | None:
    name = rng.choice(sorted(CLASSES))
    known = view.tables["DeviceClass"].get(name)
    if known is None:
        return [create({"kind": "DeviceClass", "metadata": {"name": name}, "spec": CLASSES[name]})]
    if rng.random() < 0.5:
        return [delete(known)]
    return [patch(known, {"spec": {"selectors": rng.choice(list(CLASSES.values())).get("selectors")}})]


def _claiming(pod: Json, view: View, rng: Random) -> Json:
    """The pod with one claim or two, each of a template or one that others may name."""
    entries = []
    for at in range(rng.choice((1, 1, 1, 2))):
        if rng.random() < 0.3:
            entries.append({"name": f"c{at}", "resourceClaimName": rng.choice(SHARED)})
        else:
            entries.append({"name": f"c{at}", "resourceClaimTemplateName": rng.choice(sorted(TEMPLATES))})
    containers = [{**one, "resources": {"requests": {"cpu": "100m"}, "limits": {}}} for one in pod["spec"]["containers"][:1]]
    if rng.random() < 0.15:
        containers = pod["spec"]["containers"]  # what it asks for stays: shares of cards by annotation beside the claims
    hard = () if rng.random() < 0.3 else ("affinity", "topologySpreadConstraints", "nodeSelector", "initContainers", "volumes")
    spec = {key: value for key, value in pod["spec"].items() if key not in hard}
    return {**pod, "spec": {**spec, "containers": containers, "resourceClaims": entries}}


TEMPLATES: dict[str, Json] = {f"t{seed}": {"devices": {"requests": _asks(Random(seed))}} for seed in range(24)}
"""What claims made of a template ask for."""


@kind("a pod with claims comes", 16, ENGINE)
def claimant(view: View, rng: Random) -> list[Op]:
    queues = sorted(name for name in view.tables["Queue"] if name != "root")
    queue = rng.choice(queues) if len(queues) > 1 else None
    return [create(_claiming(make(view, rng, view.fresh("d"), rng.choice(SPACES), queue=queue), view, rng))]


@kind("a gang with claims comes", 8, ENGINE)
def claiming_gang(view: View, rng: Random) -> list[Op]:
    name, space, size = view.fresh("k"), rng.choice(SPACES), rng.randint(2, 4)
    made = objects.group(name, minimum=rng.randint(1, size), namespace=space, priority_class=rng.choice(("", "", "high")))
    del made["metadata"]["uid"]
    first = _claiming(make(view, rng, name, space, group=name), view, rng)
    pods = [_claiming(first, view, rng) if rng.random() < 0.3 else first for _ in range(size)]
    named = ({**pod, "metadata": {**pod["metadata"], "name": f"{name}-{i}"}} for i, pod in enumerate(pods))
    return [create(made), *map(create, named)]


@kind("a claim that anybody may name comes", 3, ENGINE)
def claim_comes(view: View, rng: Random) -> list[Op]:
    return [create(claim(rng.choice(SHARED), rng.choice(SPACES), rng))]


@kind("a claim is deleted", 2, ENGINE)
def claim_goes(view: View, rng: Random) -> list[Op] | None:
    """One with its finalizer goes when it is used no more."""
    found = view.all("ResourceClaim")
    if not found:
        return None
    one = rng.choice(found)
    if one["metadata"].get("finalizers"):
        return [patch(one, {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}})]
    return [delete(one), *([anew(one, {"status": {}})] if rng.random() < 0.4 else [])]


@kind("somebody else writes the status of a claim", 2, ENGINE)
def status_written(view: View, rng: Random) -> list[Op] | None:
    """Another scheduler allocates it, a tenant with too many rights takes what he can, or writes nonsense."""
    found = [one for one in view.all("ResourceClaim") if not one.get("status", {}).get("allocation")]
    devices = [(one["spec"]["driver"], one["spec"]["pool"]["name"], device) for one in view.all("ResourceSlice")
               for device in one["spec"].get("devices") or ()]  # fmt: skip
    if not found or not devices:
        return None
    one, (driver, pool, device) = rng.choice(found), rng.choice(devices)
    result = {"request": "g", "driver": driver, "pool": pool, "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        amount = rng.choice(("10Gi", "80Gi", "-80Gi", "500Gi"))
        result |= {"shareID": f"{rng.randrange(10**9)}", "consumedCapacity": {"memory": amount}}
    node = {"key": "metadata.name", "operator": "In", "values": [pool]}
    selector = rng.choice(({"nodeSelectorTerms": [{"matchFields": [node]}]}, None, {"nodeSelectorTerms": []}))
    users = rng.choice(([], [{"resource": "pods", "name": "x", "uid": "x"}], [{"resource": "pods"}]))
    allocation = {"devices": {"results": [result]}, **({"nodeSelector": selector} if selector else {})}
    return [patch(one, {"status": {"allocation": allocation, "reservedFor": users}})]


@kind("the claim controller rests or works again", 2, ENGINE)
def controller_rests(view: View, rng: Random) -> list[Op]:
    return [{"do": "claims rest", "for": rng.choice((0, 1, 2, 5))}]


@kind("writes on claims are refused", 2, ENGINE)
def writes_refused(view: View, rng: Random) -> list[Op]:
    return [{"do": "refuse claims", "next": rng.choice((1, 1, 2, 3))}, {"do": "wait", "seconds": 0.25}]


@kind("the scheduler is killed between writes on claims", 2, ENGINE)
def killed_between(view: View, rng: Random) -> list[Op]:
    return [{"do": "kill amid claims", "after": rng.choice((0, 0, 1, 2))}]
