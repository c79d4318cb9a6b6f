"""Steps of pods: they come in every shape, change in place, and go."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from kit import objects
from kit.fake_cluster import Json
from kit.kube_rules import PREEMPTABLE
from tests.property.history.registry import Op, View, create, delete, kind, patch, terminate

APPS, SPACES, ZONES = ("a", "b", "c"), ("default", "other"), ("x", "y")
ZONE, HOST = "zone", "kubernetes.io/hostname"
QUEUE = "scheduling.volcano.sh/queue-name"
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
SHAPES: tuple[dict[str, Any], ...] = (
    {"mib": 3000}, {"mib": 5000, "cores": 60}, {"cards": 2, "mib": 2000}, {"cards": 1}, {"mib": 1000, "cores": 100},
    {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "3"}, {"cpu": "500m", "mib": 2000}, {},
)  # fmt: skip
LEGACY: tuple[dict[str, Any], ...] = (
    {"limits": {"volcano.sh/gpu-memory": "3000"}}, {"limits": {"volcano.sh/gpu-memory": "5000"}},
    {"limits": {"volcano.sh/gpu-number": "1"}}, {"limits": {"volcano.sh/gpu-number": "2"}},
)  # fmt: skip


def _shape(view: View, dice: Random, shapes: Sequence[dict[str, Any]] = SHAPES) -> dict[str, Any]:
    """Amounts of one container: by the sharing of this cluster, rarely by another."""
    legacy = [shape for shape in LEGACY if not shape["limits"].keys().isdisjoint(view.sharing)]
    if dice.random() < 0.02:
        return dice.choice((*LEGACY, SHAPES[0]))
    if legacy and dice.random() < 0.6:
        return dice.choice(legacy)
    return dice.choice([shape for shape in shapes if not legacy or not shape.keys() & {"mib", "cards"}])


def _selector(dice: Random) -> Json:
    app = dice.choice(APPS)
    return dice.choice(({"matchLabels": {"app": app}}, {"matchLabels": {"app": app}}, {},
                        {"matchExpressions": [{"key": "app", "operator": dice.choice(("In", "NotIn")), "values": [app]}]},
                        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}))  # fmt: skip


def _term(dice: Random) -> Json:
    term: Json = {"labelSelector": _selector(dice), "topologyKey": dice.choice((ZONE, ZONE, HOST))}
    if dice.random() < 0.2:
        term |= dice.choice(({"namespaces": ["other"]}, {"namespaceSelector": {}},
                             {"namespaceSelector": {"matchLabels": {"team": "two"}}}))  # fmt: skip
    return term


def _affinity(dice: Random, most: int = 2) -> Json:
    """Near, away, or rather near; up to so many terms."""
    found: Json = {}
    for which, likely in (("podAffinity", 0.3), ("podAntiAffinity", 0.6)):
        if dice.random() < likely:
            found[which] = {REQUIRED: [_term(dice) for _ in range(min(most, dice.choice((1, 1, 2))))]}
        elif dice.random() < 0.3:
            found[which] = {PREFERRED: [{"weight": dice.choice((1, 50)), "podAffinityTerm": _term(dice)}]}
    if dice.random() < 0.2:
        expression = {"key": ZONE, "operator": dice.choice(("In", "NotIn")), "values": [dice.choice(ZONES)]}
        found["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return found


def _spec(view: View, dice: Random) -> Json:
    spec: Json = {}
    if dice.random() < 0.35:
        spec["affinity"] = _affinity(dice, 1 if "several terms" in view.without else 2)
    if dice.random() < 0.12 and "hard spread" not in view.without:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": dice.choice((1, 1, 2)), "topologyKey": dice.choice((ZONE, HOST)),
             "whenUnsatisfiable": dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
             "labelSelector": {"matchLabels": {"app": dice.choice(APPS)}}}]  # fmt: skip
    if dice.random() < 0.12:
        spec["nodeSelector"] = {ZONE: dice.choice(ZONES)}
    if dice.random() < 0.25:
        spec["tolerations"] = [dice.choice(({"operator": "Exists"},
                                            {"key": "dedicated", "operator": "Equal", "value": "gpu"}))]  # fmt: skip
    return spec


def make(view: View, dice: Random, name: str, space: str, **more: Any) -> Json:
    """A pod of any shape."""
    labels = {"app": dice.choice(APPS)} if dice.random() < 0.9 else {}
    if dice.random() < 0.3:
        labels["tier"] = "front"
    pod = objects.pod(name, namespace=space, labels=labels, priority=dice.choice((None, None, None, 5, 9)),
                      **_shape(view, dice), **_spec(view, dice), **more)  # fmt: skip
    del pod["metadata"]["uid"]
    _enrich(view, dice, pod)
    return pod


def _enrich(view: View, dice: Random, pod: Json) -> None:
    containers = pod["spec"]["containers"]
    containers[0]["image"] = dice.choice(("busybox", "other:1"))
    if dice.random() < 0.08:
        containers[0]["ports"] = [{"containerPort": 80, "hostPort": dice.choice((80, 80, 81)),
                                   **dice.choice(({}, {}, {"hostIP": "10.0.0.1"}, {"protocol": "UDP"}))}]  # fmt: skip
    if dice.random() < 0.12:
        shapes = SHAPES[5:8] if "several containers with cards" in view.without else SHAPES
        for number in range(dice.choice((1, 2))):
            other = objects.pod("x", **_shape(view, dice, shapes))["spec"]["containers"][0]
            containers.append({**other, "name": f"c{number}"})
    if dice.random() < 0.06:
        init = objects.pod("x", cpu=dice.choice(("1", "3")))["spec"]["containers"][0]
        pod["spec"]["initContainers"] = [{**init, "name": "init", **dice.choice(({}, {"restartPolicy": "Always"}))}]
    if dice.random() < 0.4:
        pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True,
                                               "name": pod["metadata"]["name"], "uid": pod["metadata"]["name"]}]  # fmt: skip
    if dice.random() < 0.2:
        pod["metadata"]["annotations"][PREEMPTABLE] = dice.choice(("true", "false", "false"))
    if dice.random() < 0.02:
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    if dice.random() < 0.05:
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": dice.choice(("claim-0", "claim-1"))}}]


def _queue(view: View, dice: Random) -> str | None:
    names = sorted(name for name in view.tables["Queue"] if name != "root")
    return dice.choice(names) if len(names) > 1 else None


@kind("a pod comes", 14)
def comes(view: View, dice: Random) -> list[Op]:
    gates = [{"name": f"example.com/{name}"} for name in ("wait", "quota", "net")[: dice.choice((1, 2, 3))]]
    gated = {"schedulingGates": gates} if dice.random() < 0.06 else {}
    return [create(make(view, dice, view.fresh("p"), dice.choice((*SPACES, "default")), queue=_queue(view, dice), **gated))]


@kind("pods alike come", 5)
def alike(view: View, dice: Random) -> list[Op]:
    """Replicas: one class, two or three at a time."""
    name, space = view.fresh("r"), dice.choice(SPACES)
    first = make(view, dice, name, space, queue=_queue(view, dice))
    return [create({**first, "metadata": {**first["metadata"], "name": f"{name}-{i}"}}) for i in range(dice.choice((2, 3)))]


@kind("a gang comes", 5)
def gang(view: View, dice: Random) -> list[Op]:
    name, space, size = view.fresh("g"), dice.choice(SPACES), dice.randint(2, 4)
    made = objects.group(name, minimum=dice.randint(1, size), namespace=space, queue=_queue(view, dice) or "default",
                         priority_class=dice.choice(("", "", "high")))  # fmt: skip
    del made["metadata"]["uid"]
    first = make(view, dice, name, space, group=name)
    pods = [make(view, dice, name, space, group=name) if dice.random() < 0.15 else first for _ in range(size)]
    ops = [create({**pod, "metadata": {**pod["metadata"], "name": f"{name}-{i}"}}) for i, pod in enumerate(pods)]
    ops.insert(dice.choice((0, 0, len(ops))), create(made))
    return ops


@kind("pods for slices come", 2)
def for_slices(view: View, dice: Random) -> list[Op]:
    """Unlike parts of cards in MIG mode at once, as a gang or each by itself: who takes which layout matters to the others."""
    name, space, size = view.fresh("m"), dice.choice(SPACES), dice.randint(2, 6)
    together = dice.random() < 0.5
    queue = _queue(view, dice)
    ops: list[Op] = []
    if together:
        made = objects.group(name, minimum=dice.choice((size, size, 2)), namespace=space, queue=queue or "default")
        del made["metadata"]["uid"]
        ops.append(create(made))
    for number in range(size):
        belongs = {"group": name} if together else {"queue": queue}
        mode = {"volcano.sh/vgpu-mode": "mig"} if dice.random() < 0.8 else {}
        pod = objects.pod(f"{name}-{number}", namespace=space, labels={"app": dice.choice(APPS)}, annotations=mode,
                          mib=dice.choice((3000, 5000, 9000, 10000, 18000, 40000)), **belongs)  # fmt: skip
        del pod["metadata"]["uid"]
        ops.append(create(pod))
    return ops


@kind("somebody else's pod comes", 2)
def stranger(view: View, dice: Random) -> list[Op] | None:
    """Bound by another scheduler, or by nobody: it counts, whatever we think of it."""
    nodes = sorted(view.tables["Node"])
    if not nodes:
        return None
    labels = {"app": dice.choice(APPS)}
    pod = objects.pod(view.fresh("s"), cpu=dice.choice(("500m", "1")), labels=labels, scheduler="default-scheduler",
                      nodeName=dice.choice(nodes), **({"affinity": _affinity(dice)} if dice.random() < 0.4 else {}))  # fmt: skip
    del pod["metadata"]["uid"]
    return [create(pod)]


@kind("a pod is deleted", 5)
def deleted(view: View, dice: Random) -> list[Op] | None:
    found = view.pods(ours=False)
    return [delete(dice.choice(found))] if found else None


@kind("a pod begins to go", 4)
def begins_to_go(view: View, dice: Random) -> list[Op] | None:
    found = view.live()
    return [terminate(dice.choice(found))] if found else None


@kind("pods that are going are gone", 4)
def gone(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.pods(ours=False) if "deletionTimestamp" in p["metadata"]]
    return [delete(p) for p in found if dice.random() < 0.7] or None


def _another(view: View, pod: Json, name: str) -> Json:
    """As its controller makes it anew, or a rival wants its place."""
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    meta = {"name": view.fresh(name), "namespace": pod["metadata"]["namespace"], "labels": pod["metadata"].get("labels", {}),
            "annotations": {k: v for k, v in pod["metadata"]["annotations"].items() if k == QUEUE}}  # fmt: skip
    return {**pod, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


@kind("an heir comes while its forerunner goes", 3)
def heir(view: View, dice: Random) -> list[Op] | None:
    """A rolling update, or a controller that replaces what is drained."""
    found = view.live(bound=True)
    if not found:
        return None
    going = dice.choice(found)
    return [terminate(going), create(_another(view, going, "h"))]


@kind("a rival comes", 3)
def rival(view: View, dice: Random) -> list[Op] | None:
    """It asks for the same as one that runs, is more important, and may be of another queue."""
    found = view.live(bound=True)
    if not found:
        return None
    made = _another(view, dice.choice(found), "v")
    queue = _queue(view, dice)
    if queue is not None and dice.random() < 0.6:
        made["metadata"]["annotations"][QUEUE] = queue
    return [create({**made, "spec": {**made["spec"], "priority": dice.choice((9, 50))}})]


@kind("a pod runs", 5)
def runs(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.live(bound=True) if p["status"]["phase"] == "Pending"]
    return [{**patch(dice.choice(found), {"status": {"phase": "Running"}}), "if": "bound"}] if found else None


@kind("all pods run", 4)
def all_run(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.live(bound=True) if p["status"]["phase"] == "Pending"]
    return [{**patch(pod, {"status": {"phase": "Running"}}), "if": "bound"} for pod in found] or None


@kind("a pod ends", 3)
def ends(view: View, dice: Random) -> list[Op] | None:
    found = view.live(bound=True)
    phase = dice.choice(("Succeeded", "Failed"))
    return [{**patch(dice.choice(found), {"status": {"phase": phase}}), "if": "bound"}] if found else None


@kind("a pod is labelled anew", 3)
def labelled(view: View, dice: Random) -> list[Op] | None:
    found = view.live()
    return [patch(dice.choice(found), {"metadata": {"labels": {"app": dice.choice(APPS)}}})] if found else None


@kind("a pod is resized", 4)
def resized(view: View, dice: Random) -> list[Op] | None:
    """The spec changes at once; what the container has, its status says, follows when the kubelet gets to it."""
    found = [p for p in view.live(bound=True) if "cpu" in p["spec"]["containers"][0]["resources"].get("requests", {})]
    if not found:
        return None
    pod, cpu = dice.choice(found), dice.choice(("500m", "1", "2", "4"))
    main = pod["spec"]["containers"][0]
    resources = {part: {**main["resources"][part], "cpu": cpu} for part in ("requests", "limits")}
    containers = [{**main, "resources": resources}, *pod["spec"]["containers"][1:]]
    before = {"name": main["name"], "resources": {"requests": main["resources"]["requests"]}}
    status = {"containerStatuses": pod["status"].get("containerStatuses") or [before]}
    return [{**patch(pod, {"spec": {"containers": containers}, "status": status}), "if": "bound"}]


@kind("a resize is carried out", 4)
def carried_out(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.live(bound=True) if p["status"].get("containerStatuses")]
    return [{**patch(dice.choice(found), {"status": {"containerStatuses": None}}), "if": "bound"}] if found else None


@kind("a gate is lifted", 4)
def lifted(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.live() if p["spec"].get("schedulingGates")]
    if not found:
        return None
    pod = dice.choice(found)
    gates = list(pod["spec"]["schedulingGates"])
    gates.remove(dice.choice(gates))
    return [patch(pod, {"spec": {"schedulingGates": gates or dice.choice((None, []))}})]


@kind("a pod is nominated", 1)
def nominated(view: View, dice: Random) -> list[Op] | None:
    found, nodes = view.live(bound=False), sorted(view.tables["Node"])
    if not found or not nodes:
        return None
    return [{**patch(dice.choice(found), {"status": {"nominatedNodeName": dice.choice(nodes)}}), "if": "unbound"}]
