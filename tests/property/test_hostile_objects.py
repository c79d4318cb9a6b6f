"""Whatever stands in an object that the watch tells, the scheduler goes on: sound pods are bound and the pages are served."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from kit.objects import group, hyper_node, node, pod, queue
from kit.scheduler_daemon import CONF, Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.ports.cluster import WatchEvent

JUNK: list[Any] = [
    None, -1, 0, 2**31, 2**63, 10**30, -(10**30), "", "x", "-5", "1e30", "NaN", "9" * 20, [], {}, [None], {"a": None},
    True, 1.5, "\u0000", "a/b/c", "::", ",,", "é" * 300, [[[]]], {"": ""},
]  # fmt: skip
TERM = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}}
SUB_GROUP = {"name": "w", "labelSelector": {"matchLabels": {"x": "y"}}, "matchLabelKeys": ["x"], "subGroupSize": 1,
             "networkTopology": {"mode": "soft", "highestTierAllowed": 1}}  # fmt: skip
ROLES = {"volcano.sh/task-topology-affinity": "a,b;c", "volcano.sh/task-topology-anti-affinity": "a",
         "volcano.sh/network-topology-mode": "hard", "volcano.sh/network-topology-highest-tier": "2"}  # fmt: skip
NODES = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}]}
CONSTRAINED = {
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODES]},
                         "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": NODES}]},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": TERM}]},
    },
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
    "topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    "nodeSelector": {"a": "b"}, "overhead": {"cpu": "1m"},
}  # fmt: skip


def sound(kind: str, i: int, rng: Random) -> dict[str, Any]:
    """An object of that kind before anybody spoils it."""
    if kind == "pods":
        spec: dict[str, Any] = {"nodeName": rng.choice(["n1", "nowhere"])} if rng.random() < 0.3 else {}
        notes = {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,1000,0:", "volcano.sh/vgpu-node": "n1"}
        return pod(f"f{i}", mib=1000, cores=10, cpu="1", group=rng.choice([None, "fg"]), labels={"x": "y"},
                   annotations=notes if rng.random() < 0.3 else {}, **spec,
                   **(CONSTRAINED if rng.random() < 0.5 else {}))  # fmt: skip
    if kind == "nodes":
        return node(f"fn{i % 5}", cards=2, labels={"a": "5"}, taints=[{"key": "t", "effect": "NoSchedule"}] * (i % 2))
    if kind == "podgroups":
        made = group("fg", minimum=1, resources={"cpu": "1"}, roles={"a": 1}, priority_class="p",
                     topology={"mode": "hard", "highestTierAllowed": 2, "highestTierName": ""} if i % 2 else None,
                     sub_groups=[SUB_GROUP] if rng.random() < 0.5 else ())  # fmt: skip
        made["metadata"]["annotations"] = dict(ROLES) if rng.random() < 0.5 else {}
        return made
    if kind == "queues":
        made = queue(f"fq{i % 3}" if i % 2 else "default", capability={"cpu": "4"})
        made["spec"]["affinity"] = {"nodeGroupAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["g"]}}
        made["metadata"]["annotations"] = {"volcano.sh/nodegroup-resource-limits": '{"g": {"cpu": "1"}}'}
        return made
    if kind == "hypernodes":
        return hyper_node(f"h{i % 4}", i % 3, "n1", "fn1", tier_name="rack", children=[f"h{(i + 1) % 4}"], selectors=[
            {"regexMatch": {"pattern": "^fn[0-9]+$"}}, {"labelMatch": {"matchLabels": {"a": "5"}, "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["5"]}]}}])  # fmt: skip
    if kind in ("services", "replicasets"):
        selector: dict[str, Any] = {"x": "y"} if kind == "services" else {"matchLabels": {"x": "y"}}
        return {"metadata": {"name": "w", "namespace": "default", "uid": "w"}, "spec": {"selector": selector}}
    claim = {"volumeName": "pv", "storageClassName": "s", "accessModes": ["ReadWriteOnce"]}
    return {
        "priorityclasses": {"metadata": {"name": "p", "uid": "p"}, "value": 5},
        "claims": {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": claim, "status": {"phase": "Bound"}},
        "volumes": {"metadata": {"name": "pv", "uid": "pv"}, "spec": {
            "nodeAffinity": {"required": {"nodeSelectorTerms": [NODES]}}, "claimRef": {"name": "c"}}},
        "storageclasses": {"metadata": {"name": "s", "uid": "s"}, "volumeBindingMode": "WaitForFirstConsumer"},
    }[kind]  # fmt: skip


def places(obj: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    for key in obj if isinstance(obj, dict) else range(len(obj)) if isinstance(obj, list) else ():
        yield from places(obj[key], (*at, key))


def spoiled(obj: dict[str, Any], rng: Random) -> dict[str, Any]:
    """With one to three of its values replaced by junk, or gone."""
    obj = copy.deepcopy(obj)
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice([at for at in places(obj) if at] or [("metadata",)])
        into: Any = obj
        for key in way:
            into = into[key]
        if rng.random() < 0.2 and (isinstance(into, list) or last in into):
            del into[last]
        else:
            into[last] = copy.deepcopy(rng.choice(JUNK))
    return obj


def report(running: Daemon, kind: str, type_: str, obj: dict[str, Any]) -> None:
    informers = running.scheduler.informers
    handlers = {name: handle for name, _, _, handle in informers.handlers()}
    informers._take(kind, handlers[kind], WatchEvent(type_, json.dumps(obj).encode()))  # type: ignore[arg-type]


KINDS = ["pods", "pods", "nodes", "podgroups", "queues", "priorityclasses", "claims", "volumes", "storageclasses",
         "hypernodes", "hypernodes", "services", "replicasets"]  # fmt: skip
EVERYTHING = CONF + "".join(
    f"  - name: {name}\n"
    for name in ("nodeorder", "task-topology", "network-topology-aware", "resource-strategy-fit")
) + "  - name: nodegroup\n    arguments: {strict: false}\n"


@pytest.mark.parametrize("seed", range(6))
def test_no_object_ends_the_scheduler(seed: int) -> None:
    async def story() -> None:
        rng = Random(seed)
        async with daemon(node("n1", cards=2), node("n2", cards=2), conf=EVERYTHING) as running:
            for i in range(400):
                kind = rng.choice(KINDS)
                type_ = rng.choice(["ADDED", "MODIFIED", "ADDED", "DELETED"])
                report(running, kind, type_, spoiled(sound(kind, i, rng), rng))
                if i % 20 == 0:
                    await running.clock.sleep(0.2)
                    assert not running.task.done() or running.task.result() is None
            for i in range(10):  # the API server knows nothing of these pods: their Bindings come back as 404
                report(running, "pods", "ADDED", sound("pods", 1000 + i, rng))
            await running.clock.sleep(5)
            await create(running.cluster, pod("bystander", mib=10, cpu="10m"))
            await running.clock.sleep(5)
            assert await running.bound("bystander") or await running.condition("bystander")
            assert (await running.page("/metrics"))[0] == 200

    run_virtually(story())
