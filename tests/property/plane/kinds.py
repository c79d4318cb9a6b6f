"""The steps of the plane: workloads come and go, and what the world does to each process, node and connection."""

from __future__ import annotations

from random import Random
from typing import Any

from kit import objects
from kit.fake_cluster import Json, Store
from tests.property.history.registry import Op, View, kind
from tests.property.plane.node import LIFE, NUMBER

MODE = "volcano.sh/vgpu-mode"
URGENT = "urgent"
"""The PriorityClass of pods for which, where the configuration makes room, others go."""
NEVER = "never"
"""The beginning of the names of gangs that want more than there is."""
BOUNDED, BOUND = "bounded", 2
"""A queue that may have so many shares at a time, where the configuration heeds what a queue may have."""
WHOLE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "16000", "volcano.sh/vgpu-cores": "100"}
"""All of a card that is shared."""

PLANE, CUT, HAMI = "plane", "plane with NPUs cut on demand", "plane with NPUs in HAMi's mode"
CLAIMS, ADMITTED, MONITORED = "plane with claims", "plane with webhooks", "plane with monitors"
RECLAIMING, SERVED = "plane with queues that claim back", "plane with cards shared by MPS"
BESIDE_UPSTREAM = "plane with upstream's plugin"
SHARED = (PLANE, CLAIMS, ADMITTED, MONITORED, RECLAIMING, SERVED, BESIDE_UPSTREAM)
"""Those without NPUs."""
PLANES = (PLANE, CUT, HAMI, CLAIMS, ADMITTED, MONITORED, RECLAIMING, SERVED, BESIDE_UPSTREAM)
WRONG = "wrong"
"""The beginning of the names of Jobs that may not be."""
NODES, SLICED = ("n0", "n1", "m0"), "m0"
"""``m0`` has cards in MIG mode, or else NPUs; the others share theirs."""
CENTRAL = ("scheduler a", "scheduler b", "controller", "kube-controllers")
PROCESSES = (*CENTRAL, *(f"{part} {node}" for node in NODES for part in ("kubelet", "plugin")))
GRACE = (0, 0, 3, 20)
"""Seconds for which the program of a pod that is deleted goes on, as one that does not heed SIGTERM."""
SLICE_SIZES = (3000, 6000, 6000, 9000, 12000, 20000)
SIZES = (1000, 2000, 4000, 8000, 12000, 16000)
EFFECTS = {
    "scheduler": (*["POST pods binding"] * 3, "PATCH pods status",
                  "PATCH podgroups status", "PATCH pods", "PUT leases", "POST leases", "DELETE pods"),
    "controller": ("POST pods", "POST podgroups", "PATCH podgroups", "PATCH jobs status", "DELETE pods"),
    "kube-controllers": ("POST pods", "POST replicasets", "DELETE pods", "PATCH deployments status"),
    "kubelet": ("PATCH pods status", "PATCH nodes status", "DELETE pods"),
    "plugin": ("PATCH pods", "PATCH nodes", "make slice", "fill slice", "drain slice", "remove slice"),
}
"""Of each process what is at stake: a fault may wait for such an effect."""
CROWD = 12
"""So many pods that wait are enough."""
CODES = (403, 404, 409, 422, 429, 500, 503, 504, 0, 0)


def _process(rng: Random) -> str:
    """Those that decide, and the one that cuts cards, more often than others."""
    return rng.choice((*PROCESSES, "scheduler a", "scheduler b", f"plugin {SLICED}", f"plugin {SLICED}"))


def _aimed(rng: Random) -> tuple[str, str]:
    """Return a process, and in half of the cases one of its effects."""
    process = _process(rng)
    kind_ = next(kind_ for kind_ in EFFECTS if process.startswith(kind_))
    return process, rng.choice(EFFECTS[kind_]) if rng.random() < 0.6 else ""


def make(name: str, rng: Random, *, slices: bool = False, **more: Any) -> Json:
    """A pod with shares, of one or two containers; or with ``slices``."""
    cores = rng.choice((None, 10, 25, 50, 100))
    if slices:
        made = objects.pod(name, mib=rng.choice(SLICE_SIZES), cards=rng.choice((1, 1, 1, 2)), annotations={MODE: "mig"}, **more)
    else:
        made = objects.pod(name, mib=rng.choice(SIZES), cards=rng.choice((1, 1, 1, 2)), cores=cores, **more)
    for part in ("uid", "creationTimestamp"):
        made["metadata"].pop(part, None)
    del made["status"]
    made["spec"]["restartPolicy"] = "Never"
    made["spec"]["terminationGracePeriodSeconds"] = rng.choice(GRACE)
    if rng.random() < 0.25:
        percent = None if slices else rng.choice((None, 10))
        other = objects.pod("x", mib=rng.choice(SIZES[:4]), cores=percent)["spec"]["containers"][0]
        made["spec"]["containers"].append({**other, "name": "second"})
    if rng.random() < 0.6:
        made["metadata"]["annotations"][LIFE] = str(rng.choice((1, 5, 20, 90)))
    return made


def _asking(pod: Json, amounts: Json) -> None:
    """Let the pod have one container that asks for this share of a card, and no slice."""
    pod["metadata"]["annotations"][MODE] = "hami-core"
    pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "resources": {"limits": amounts, "requests": amounts}}]


def _create(resource: str, obj: Json) -> Op:
    return {"do": "create", "resource": resource, "object": obj}


def _some(view: View, rng: Random, kind_: str, fits: Any = lambda obj: True) -> Json | None:
    found = [obj for key, obj in sorted(view.tables[kind_].items()) if fits(obj)]
    return rng.choice(found) if found else None


def _emptied(view: View) -> list[Op]:
    """Delete all that is there: what follows finds an empty cluster."""
    found = [(kind_, key) for kind_ in ("Deployment", "Job", "PodGroup", "Pod") for key in sorted(view.tables[kind_])]
    return [*({"do": "delete", "kind": kind_, "key": key, "now": True} for kind_, key in found), {"do": "wait", "seconds": 12.0}]


# -- workloads --------------------------------------------------------------------------------------------------------------


@kind("pods with shares come", 14, *PLANES)
def pods_come(view: View, rng: Random) -> list[Op]:
    return _pods(f"p{rng.getrandbits(24):06x}", rng, slices=False)


@kind("pods with slices come", 6, *SHARED)
def slices_come(view: View, rng: Random) -> list[Op]:
    return _pods(f"s{rng.getrandbits(24):06x}", rng, slices=True)


def _pods(name: str, rng: Random, *, slices: bool) -> list[Op]:
    first = rng.random() < 0.5
    made = make(name, rng, slices=slices)
    number = rng.choice((1, 1, 2, 3, 6))
    found = [made if first else make(name, rng, slices=slices) for _ in range(number)]
    return [_create("pods", {**pod, "metadata": {**pod["metadata"], "name": f"{name}-{at}"}}) for at, pod in enumerate(found)]


@kind("pods come that fill the cluster", 3, *SHARED)
def filled(view: View, rng: Random) -> list[Op]:
    """From here on whoever comes waits for somebody to go."""
    name = f"f{rng.getrandbits(24):06x}"
    shared = [make(f"{name}-{at}", rng) for at in range(6)]
    for pod in shared:
        pod["metadata"]["annotations"].pop(LIFE, None)
        amounts = pod["spec"]["containers"][0]["resources"]
        for part in ("limits", "requests"):
            amounts[part]["volcano.sh/vgpu-memory"] = str(rng.choice((8000, 12000, 16000)))
    sliced = [make(f"{name}-m{at}", rng, slices=True) for at in range(2)]
    return [_create("pods", pod) for pod in (*shared, *sliced)]


@kind("urgent pods come to a full cluster", 4, *PLANES)
def urgent_come(view: View, rng: Random) -> list[Op]:
    name = f"u{rng.getrandbits(24):06x}"
    urgent = [make(f"{name}-{at}", rng, priorityClassName=URGENT) for at in range(rng.choice((1, 1, 2, 4)))]
    for pod in urgent:
        _asking(pod, {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(rng.choice((8000, 12000, 16000)))})
    return [*filled(view, rng), {"do": "wait", "seconds": rng.choice((0.1, 1.0, 3.0))}, *(_create("pods", pod) for pod in urgent)]


@kind("a pod on the plane is replaced while it goes", 4, *PLANES)
def replaced(view: View, rng: Random) -> list[Op] | None:
    """As in a rolling update."""
    found = _some(view, rng, "Pod", lambda pod: pod["status"].get("phase") == "Running")
    if found is None:
        return None
    name = f"h{rng.getrandbits(24):06x}"
    notes = {key: text for key, text in found["metadata"].get("annotations", {}).items() if key == MODE}
    labels = {key: text for key, text in found["metadata"].get("labels", {}).items() if key.startswith(("ring-", "vnpu-"))}
    keep = ("schedulerName", "containers", "resourceClaims", "restartPolicy", "terminationGracePeriodSeconds")
    meta = {"name": name, "namespace": "default", "annotations": notes, "labels": labels}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
           "spec": {key: found["spec"][key] for key in keep if key in found["spec"]}}  # fmt: skip
    return [{"do": "delete", "kind": "Pod", "key": Store.key(found), "now": False}, _create("pods", pod)]


@kind("a gang of pods comes", 4, *PLANES)
def gang_comes(view: View, rng: Random) -> list[Op]:
    name, size = f"g{rng.getrandbits(24):06x}", rng.randint(2, 5)
    group = objects.group(name, minimum=rng.randint(2, size))
    group["metadata"] = {"name": name, "namespace": "default"}
    del group["status"]
    slices = rng.random() < 0.2
    pods = [make(f"{name}-{at}", rng, slices=slices, group=name, labels={"gang": name}) for at in range(size)]
    ops = [_create("pods", pod) for pod in pods]
    ops.insert(rng.choice((0, 0, len(ops))), _create("podgroups", group))
    return ops


@kind("a gang comes that can never stand", 4, *PLANES)
def too_large(view: View, rng: Random) -> list[Op]:
    """It wants one card more than there are that are shared, or one of its pods wants more than a node has: none of it may ever
    have a node."""
    name, size = f"{NEVER}{rng.getrandbits(24):06x}", 5
    group = objects.group(name, minimum=size)
    group["metadata"] = {"name": name, "namespace": "default"}
    del group["status"]
    pods = [make(f"{name}-{at}", rng, group=name, labels={"gang": name}) for at in range(size)]
    for pod in pods:
        _asking(pod, WHOLE)
    if rng.random() < 0.5:
        first, others = pods[0]["spec"]["containers"][0], rng.choice((1, 2))
        group["spec"]["minMember"], pods = 1 + others, pods[: 1 + others]
        first["resources"] = {part: {**WHOLE, NUMBER: "2"} for part in ("limits", "requests")}
        pods[0]["spec"]["containers"].append({**pods[1]["spec"]["containers"][0], "name": "second"})
    return [_create("podgroups", group), *(_create("pods", pod) for pod in pods)]


@kind("a Job of Volcano's comes", 4, *PLANES)
def job_comes(view: View, rng: Random) -> list[Op]:
    name, replicas = f"j{rng.getrandbits(24):06x}", rng.randint(1, 4)
    pod = make("x", rng)
    template = {"metadata": {"annotations": {LIFE: str(rng.choice((3, 30)))}}, "spec": {
        "containers": pod["spec"]["containers"], "restartPolicy": "Never",
        "terminationGracePeriodSeconds": pod["spec"]["terminationGracePeriodSeconds"]}}  # fmt: skip
    spec = {"schedulerName": "volcano", "minAvailable": rng.randint(1, replicas), "queue": "default",
            "maxRetry": rng.choice((1, 3)),
            "policies": [{"event": event, "action": "RestartJob"} for event in rng.choice(((), ("PodFailed",), ("PodEvicted",)))],
            "tasks": [{"name": "main", "replicas": replicas, "template": template}]}  # fmt: skip
    return [_create("jobs", {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                             "metadata": {"name": name, "namespace": "default"}, "spec": spec})]  # fmt: skip


@kind("pods of a queue with a limit come while nothing befalls anybody", 3, *PLANES)
def bounded_come(view: View, rng: Random) -> list[Op]:
    """More than its limit lets in; each is a small share of a card, so that the limit alone keeps them waiting, and the next ones
    have what the first ones release."""
    name = f"b{rng.getrandbits(24):06x}"
    pods = [make(f"{name}-{at}", rng, queue=BOUNDED) for at in range(rng.choice((3, 4)))]
    for pod in pods:
        _asking(pod, {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "500"})
        pod["metadata"]["annotations"][LIFE] = "5"
    return [{"do": "calm"}, {"do": "wait", "seconds": 40.0}, *(_create("pods", pod) for pod in pods),
            {"do": "wait", "seconds": 12.0}]  # fmt: skip


@kind("a Deployment comes", 2, *PLANES)
def deployment_comes(view: View, rng: Random) -> list[Op]:
    name = f"d{rng.getrandbits(24):06x}"
    pod = make("x", rng)
    template = {"metadata": {"labels": {"app": name}}, "spec": {
        "schedulerName": "volcano", "containers": pod["spec"]["containers"],
        "terminationGracePeriodSeconds": pod["spec"]["terminationGracePeriodSeconds"]}}  # fmt: skip
    spec = {"replicas": rng.randint(1, 3), "selector": {"matchLabels": {"app": name}}, "template": template}
    return [_create("deployments", {"apiVersion": "apps/v1", "kind": "Deployment",
                                    "metadata": {"name": name, "namespace": "default"}, "spec": spec})]  # fmt: skip


@kind("something is deleted", 7, *PLANES)
def deleted(view: View, rng: Random) -> list[Op] | None:
    kind_ = rng.choice(("Pod", "Pod", "Pod", "Job", "Deployment", "PodGroup"))
    found = _some(view, rng, kind_)
    if found is None:
        return None
    return [{"do": "delete", "kind": kind_, "key": Store.key(found), "now": rng.random() < 0.2}]


@kind("an owner writes on a pod what a scheduler would", 2, *PLANES)
def forged(view: View, rng: Random) -> list[Op] | None:
    found = _some(view, rng, "Pod")
    if found is None:
        return None
    uuid = f"GPU-{rng.choice(NODES)}-0"
    text = rng.choice((f"{uuid},NVIDIA,100,0:", "", "nonsense", f"{uuid},NVIDIA,99999999,0:"))
    key = rng.choice(("vgpu-ids-new", "devices-to-allocate", "bind-phase", "vgpu-node"))
    return [{"do": "annotate", "key": Store.key(found), "annotations": {f"volcano.sh/{key}": text}}]


# -- what befalls processes ---------------------------------------------------------------------------------------------------


@kind("a process is killed between two of its effects", 10, *PLANES)
def killed(view: View, rng: Random) -> list[Op]:
    process, only = _aimed(rng)
    return [{"do": "kill", "process": process, "writes": rng.choice((0, 0, 1, 2, 3, 7)) if not only else rng.choice((0, 0, 1)),
             "done": rng.random() < 0.5, "only": only, "at once": rng.random() < 0.3}]  # fmt: skip


@kind("a process is told to end", 2, *PLANES)
def ended(view: View, rng: Random) -> list[Op]:
    return [{"do": "end", "process": _process(rng)}]


@kind("writes fail", 10, *PLANES)
def writes_fail(view: View, rng: Random) -> list[Op]:
    code = rng.choice(CODES)
    process, only = _aimed(rng)
    return [{"do": "fault", "process": process, "only": only, "code": code, "count": rng.choice((1, 1, 2, 5)),
             "done": code in (0, 500, 503, 504) and rng.random() < 0.5}]  # fmt: skip


@kind("a process cannot reach the API server", 5, *PLANES)
def away(view: View, rng: Random) -> list[Op]:
    return [{"do": "away", "process": _process(rng), "seconds": rng.choice((1.0, 6.0, 20.0, 60.0)), "lists": rng.random() < 0.5}]


@kind("watches end", 5, *PLANES)
def watches_end(view: View, rng: Random) -> list[Op]:
    return [{"do": "hang up", "process": _process(rng), "forget": rng.random() < 0.5, "seconds": rng.choice((0.0, 3.0, 30.0))}]


@kind("a clock is set", 2, *PLANES)
def clock_set(view: View, rng: Random) -> list[Op]:
    return [{"do": "clock", "process": _process(rng), "seconds": rng.choice((-3600.0, -5.0, 30.0, 7200.0))}]


@kind("a process is stopped for a while and goes on", 4, *PLANES)
def stopped(view: View, rng: Random) -> list[Op]:
    return [{"do": "stop", "process": rng.choice((_process(rng), "scheduler a", "scheduler b")),
             "seconds": rng.choice((3.0, 12.0, 20.0, 40.0))}]  # fmt: skip


@kind("whoever leads is stopped amid its Bindings", 2, *PLANES)
def stopped_amid(view: View, rng: Random) -> list[Op]:
    """Of a gang, which are sent again and again; meanwhile the standby takes over."""
    gang = gang_comes(view, rng)
    faults = [{"do": "fault", "process": f"scheduler {which}", "only": "POST pods binding", "code": rng.choice((429, 500, 503)),
               "count": 12, "done": False} for which in "ab"]  # fmt: skip
    return [*faults, *gang, {"do": "wait", "seconds": rng.choice((0.1, 0.2, 0.5))},
            {"do": "stop", "process": f"scheduler {rng.choice('ab')}", "seconds": rng.choice((20.0, 40.0))},
            {"do": "wait", "seconds": 30.0}]  # fmt: skip


@kind("whoever leads cannot reach the API server for longer than its lease lasts, and pods come then", 2, *PLANES)
def cut_off(view: View, rng: Random) -> list[Op]:
    return [{"do": "away", "process": f"scheduler {rng.choice('ab')}", "seconds": 25.0, "lists": False},
            {"do": "wait", "seconds": rng.choice((24.0, 25.0, 26.0))}, *pods_come(view, rng), *pods_come(view, rng),
            {"do": "wait", "seconds": 5.0}]  # fmt: skip


def _whole_job(name: str) -> Json:
    """A Job that takes all cards that are shared, or none."""
    pod = objects.pod("x")
    container = {**pod["spec"]["containers"][0], "resources": {"limits": WHOLE, "requests": WHOLE}}
    template = {"metadata": {"annotations": {MODE: "hami-core"}},
                "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}}  # fmt: skip
    spec = {"schedulerName": "volcano", "minAvailable": 4, "queue": "default",
            "tasks": [{"name": "main", "replicas": 4, "template": template}]}  # fmt: skip
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}  # fmt: skip


@kind("a gang loses Bindings or whoever sends them, and urgent pods take the room", 4, *PLANES)
def gang_torn(view: View, rng: Random) -> list[Op]:
    """What has a node of the gang would keep its cards for nothing."""
    name = f"t{rng.getrandbits(24):06x}"
    urgent = [make(f"{name}-u{at}", rng, priorityClassName=URGENT) for at in range(rng.choice((1, 2, 4)))]
    for pod in urgent:
        _asking(pod, WHOLE)
        pod["metadata"]["annotations"].pop(LIFE, None)
    if rng.random() < 0.5:
        befalls: list[Op] = [{"do": "fault", "process": f"scheduler {which}", "only": "POST pods binding",
                              "code": rng.choice((403, 422)),
                              "count": rng.choice((1, 2)), "done": False} for which in "ab"]  # fmt: skip
    else:
        befalls = [{"do": "kill", "process": f"scheduler {which}", "writes": rng.choice((1, 2)), "done": rng.random() < 0.5,
                    "only": "POST pods binding", "at once": False} for which in "ab"]  # fmt: skip
    return [*_emptied(view), *befalls, _create("jobs", _whole_job(name)),
            {"do": "wait", "seconds": rng.choice((0.05, 0.05, 0.3, 2.0))},
            *(_create("pods", pod) for pod in urgent), {"do": "wait", "seconds": 30.0}]  # fmt: skip


@kind("a plugin dies while it removes a slice for a larger one", 3, *SHARED)
def removal_cut_short(view: View, rng: Random) -> list[Op]:
    """The slices of a pod that has ended lie on both cards, in the way of the next one, which goes meanwhile."""
    name = f"r{rng.getrandbits(24):06x}"
    first, second = make(f"{name}-0", rng, slices=True), make(f"{name}-1", rng, slices=True)
    for pod, memory in ((first, rng.choice((3000, 12000))), (second, 20000)):
        _asking(pod, {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": str(memory)})
        pod["metadata"]["annotations"][MODE] = "mig"
        pod["spec"]["terminationGracePeriodSeconds"] = 0
    first["metadata"]["annotations"][LIFE] = "1"
    second["metadata"]["annotations"].pop(LIFE, None)
    return [*_emptied(view), _create("pods", first), {"do": "wait", "seconds": 15.0},
            {"do": "delete", "kind": "Pod", "key": f"default/{name}-0", "now": True}, {"do": "wait", "seconds": 13.0},
            {"do": "kill", "process": f"plugin {SLICED}", "writes": 0, "done": rng.random() < 0.5,
             "only": rng.choice(("drain slice", "remove slice")), "at once": False},
            _create("pods", second), {"do": "wait", "seconds": rng.choice((1.0, 2.0))},
            {"do": "delete", "kind": "Pod", "key": f"default/{name}-1", "now": True},
            {"do": "wait", "seconds": 20.0}]  # fmt: skip


@kind("the driver refuses to cut for a pod, and the pod goes", 3, *SHARED)
def cut_refused(view: View, rng: Random) -> list[Op]:
    name = f"e{rng.getrandbits(24):06x}"
    pod = make(name, rng, slices=True)
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    step = rng.choice(("make slice", "fill slice", "fill slice", "drain slice"))
    return [{"do": "fault", "process": f"plugin {SLICED}", "only": step,
             "code": 500, "count": rng.choice((1, 2, 4)), "done": False},
            _create("pods", pod), {"do": "wait", "seconds": rng.choice((1.0, 2.0, 3.0))},
            {"do": "delete", "kind": "Pod", "key": f"default/{name}", "now": True}, {"do": "wait", "seconds": 8.0}]  # fmt: skip


@kind("a plugin dies while it cuts for a pod, and the pod goes", 3, *SHARED)
def cut_short(view: View, rng: Random) -> list[Op]:
    """What is left of the slice is nobody's when the plugin comes back."""
    name = f"c{rng.getrandbits(24):06x}"
    step = rng.choice(("make slice", "fill slice", "fill slice", "drain slice", "remove slice"))
    pod = make(name, rng, slices=True)
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    done = rng.random() < 0.5
    return [{"do": "kill", "process": f"plugin {SLICED}", "writes": 0, "done": done, "only": step, "at once": False},
            _create("pods", pod), {"do": "wait", "seconds": rng.choice((1.0, 2.0, 3.0))},
            {"do": "delete", "kind": "Pod", "key": f"default/{name}", "now": True}, {"do": "wait", "seconds": 8.0}]  # fmt: skip


@kind("several things befall processes at once", 4, *PLANES)
def at_once(view: View, rng: Random) -> list[Op]:
    kinds = (killed, writes_fail, writes_fail, away, watches_end, stopped)
    return [op for _ in range(rng.choice((2, 3, 4))) for op in rng.choice(kinds)(view, rng) or ()]


def thinned(view: View, rng: Random) -> list[Op]:
    """Delete half of what there is where a crowd waits: more who wait make each decision dearer, and none of them other."""
    waiting = [pod for pod in view.tables["Pod"].values() if not pod["spec"].get("nodeName")]
    if len(waiting) < CROWD:
        return []
    found = [(kind_, key) for kind_ in ("Deployment", "Job", "Pod") for key, obj in sorted(view.tables[kind_].items())
             if not obj["metadata"].get("ownerReferences")]  # fmt: skip
    now = rng.random() < 0.3
    return [{"do": "delete", "kind": kind_, "key": key, "now": now} for kind_, key in found if rng.random() < 0.5]


def troubled(ops: list[Op], rng: Random) -> list[Op]:
    """Let things befall processes amid a step in which something comes or goes, in nine of ten: while nobody works they would
    meet nobody. A step with troubles or times of its own is left as it is."""
    if any(op["do"] not in ("create", "delete") for op in ops) or rng.random() < 0.1:
        return ops
    befalls = [_trouble(rng) for _ in range(rng.choice((2, 3, 4, 5)))]
    at = rng.randrange(len(ops))
    return [*ops[:at], *befalls, *ops[at:]]


def _trouble(rng: Random) -> Op:
    """Each is over soon, so that what comes meanwhile is served."""
    process, only = _aimed(rng)
    return rng.choices((
        {"do": "fault", "process": process, "only": only, "code": (code := rng.choice(CODES)), "count": rng.choice((1, 1, 2, 5)),
         "done": code in (0, 500, 503, 504) and rng.random() < 0.5},
        {"do": "kill", "process": process, "writes": rng.choice((0, 0, 1)), "done": rng.random() < 0.5, "only": only,
         "at once": False},
        {"do": "hang up", "process": process, "forget": rng.random() < 0.5, "seconds": rng.choice((0.0, 3.0))},
        {"do": "away", "process": process, "seconds": rng.choice((1.0, 6.0)), "lists": rng.random() < 0.5},
        {"do": "stop", "process": process, "seconds": rng.choice((3.0, 12.0))},
        {"do": "clock", "process": process, "seconds": rng.choice((-5.0, 30.0))}),
        (5, 2, 1, 1, 1, 0.5))[0]  # fmt: skip


# -- what befalls nodes -------------------------------------------------------------------------------------------------------


@kind("a node reboots", 2, *PLANES)
def reboots(view: View, rng: Random) -> list[Op]:
    return [{"do": "reboot", "node": rng.choice(NODES)}]


@kind("a runtime begins anew, and its folder of CDI files is empty", 2, *PLANES)
def runtime_restarts(view: View, rng: Random) -> list[Op]:
    """Plugin and kubelet go on, and all containers start again."""
    return [{"do": "restart containers", "node": rng.choice(NODES)}]


@kind("a kubelet loses its record of devices", 1, *PLANES)
def loses_record(view: View, rng: Random) -> list[Op]:
    return [{"do": "lose record", "node": rng.choice(NODES)}]


@kind("a kubelet loses its record, and its plugin and all containers of its node start anew", 2, *PLANES)
def starts_without_record(view: View, rng: Random) -> list[Op]:
    """It asks for their devices once more, while the API server says that they run."""
    node = rng.choice(NODES)
    return [{"do": "lose record", "node": node},
            {"do": "kill", "process": f"plugin {node}", "writes": 0, "done": False, "only": "", "at once": True},
            {"do": "wait", "seconds": 5.0}, {"do": "restart containers", "node": node},
            {"do": "wait", "seconds": 12.0}]  # fmt: skip


@kind("the driver loses a card or finds it again", 2, *PLANES)
def card_fails(view: View, rng: Random) -> list[Op]:
    return [{"do": "card", "node": rng.choice(NODES), "card": rng.randrange(2), "lost": rng.random() < 0.5}]


@kind("the scheduler's configuration is edited to something wrong, or back", 1, *PLANES)
def configured(view: View, rng: Random) -> list[Op]:
    return [{"do": "configure", "text": rng.choice((None, None, "actions: 5", "actions: \"allocate, bakfill\"", "\t:"))}]


@kind("time passes on the plane", 10, *PLANES)
def passes(view: View, rng: Random) -> list[Op]:
    return [{"do": "wait", "seconds": rng.choice((0.3, 2.0, 8.0, 25.0))}]


@kind("nothing befalls anybody until all have come to rest", 3, *PLANES)
def rests(view: View, rng: Random) -> list[Op]:
    """What a fault has left is seen before the pods that it met are gone."""
    return [{"do": "rest"}]


__all__ = ["NODES", "NUMBER", "PLANE"]
