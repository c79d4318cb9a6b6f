"""A cluster on which all is well, and faults made on it: which check finds each, and that the repair is named.

Looking takes half a second, so that faults that do not hide each other are made on one cluster.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from kit.claims import COUNTERS, asks, claim, device, published, shared_card
from kit.direct_cluster import DirectCluster, memory_cluster
from kit.installing import HOOKS, NODE, REGISTER, create, hook, install, pod_of, status
from kit.manifests import manifest

from pumice.apps.doctor.cluster.checks import CHECKS
from pumice.apps.doctor.cluster.facts import ClaimFacts, ClusterFacts
from pumice.apps.doctor.cluster.look import look, review
from pumice.cli.diagnosis import report_cluster
from pumice.cli.output import Output
from pumice.node.findings import State, examine
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire import names
from pumice.wire.kinds import CONFIGMAPS, CRDS, DAEMON_SETS, DEPLOYMENTS, NODES, PODS
from pumice_lab.apiserver import User
from pumice_lab.first_objects import volcano_kinds

Fault = Callable[[DirectCluster], Awaitable[Any]]
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
SYSTEM, KUBE = names.SYSTEM_NAMESPACE, "kube-system"
DAEMONS = {o["metadata"]["name"]: o for o in manifest("volcano-vgpu-device-plugin.yml") if o["kind"] == "DaemonSet"}
PLUGIN = DAEMONS["volcano-device-plugin"]


def workload(kind: str, name: str, image: str, *words: str, args: tuple[str, ...] = (), space: str = SYSTEM) -> Json:
    labels = {"app": name}
    container = {"name": "c", "image": image, "command": list(words), "args": list(args)}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": space}, "spec": spec}


def made(*objects: Json) -> Fault:
    return lambda c: create(c, *objects)


def deleted(kind: Resource, name: str, space: str = "") -> Fault:
    return lambda c: c.delete(kind, name, space)


def patched(kind: Resource, name: str, body: Json, space: str = "", door: str = "") -> Fault:
    return lambda c: c.patch(kind, name, body, space, subresource=door)


def defined(name: str, change: Callable[[Json], Any]) -> Fault:
    """The definition of a kind as another version has it."""

    async def make(c: DirectCluster) -> None:
        found = await c.get(CRDS, name)
        change(found["spec"]["versions"][0])
        await c.update(CRDS, found)

    return make


def anew(name: str, version: str) -> Fault:
    async def make(c: DirectCluster) -> None:
        (obj,) = [deepcopy(o) for o in manifest(f"crds/{name.partition('.')[0]}.yaml")]
        obj["spec"]["versions"][0]["name"] = version
        await c.delete(CRDS, name)
        await create(c, obj)

    return make


def configured(name: str, key: str, text: str, space: str = KUBE) -> Fault:
    return patched(CONFIGMAPS, name, {"data": {key: text}}, space)


def fields(version: Json, part: str) -> Json:
    return version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]


def a_node(name: str, plugin: Json | None = PLUGIN, said: Json | None = None, offered: str = "10", notes: Json | None = None,
           labels: Json | None = None) -> Fault:  # fmt: skip
    """One more node, with a plugin's pod or without."""

    async def make(c: DirectCluster) -> None:
        reported = {names.NODE_VGPU_REGISTER: REGISTER} if notes is None else notes
        meta = {"name": name, "annotations": reported, "labels": labels or {}}
        await c.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        amounts = {names.VGPU_NUMBER: offered}
        await c.patch(NODES, name, {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status")
        if plugin is not None:
            await pod_of(c, plugin, name, said)

    return make


def scheduler_conf(change: Callable[[str], str]) -> Fault:
    async def make(c: DirectCluster) -> None:
        found = await c.get(CONFIGMAPS, names.SCHEDULER_CONFIGMAP, SYSTEM)
        await configured(names.SCHEDULER_CONFIGMAP, names.SCHEDULER_CONF_KEY,
                         change(found["data"][names.SCHEDULER_CONF_KEY]), SYSTEM)(c)  # fmt: skip

    return make


def all_of(*faults: Fault) -> Fault:
    async def make(c: DirectCluster) -> None:
        for fault in faults:
            await fault(c)

    return make


WAITS = {"phase": "Pending", "containerStatuses": [
    {"name": "volcano-device-plugin", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
     "state": {"waiting": {"reason": "RunContainerError", "message": "unknown runtime"}}}]}  # fmt: skip
HAMI_HOOK = hook(service="hami-scheduler", name="vgpu.hami.io", failurePolicy="Ignore") | {
    "kind": "MutatingWebhookConfiguration", "metadata": {"name": "hami-webhook"}}  # fmt: skip
HAMI = workload("Deployment", "hami-scheduler", "projecthami/hami:v2.6.0", "scheduler", "--scheduler-name=hami", space=KUBE)
NVIDIAS = workload("DaemonSet", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", space=KUBE)
VOLCANOS = workload("DaemonSet", "old-plugin", "docker.io/volcanosh/volcano-vgpu-device-plugin:v1.11.0", space=KUBE)

CLAIMS = "resource.k8s.io/v1"
CLAIM = Resource("resource.k8s.io", "v1", "resourceclaims")


def a_slice(*devices: Json, name: str = "", **more: Any) -> Json:
    named = name or f"s-{more.get('pool')}-{len(devices)}"
    return {"apiVersion": CLAIMS, "kind": "ResourceSlice", **published(*devices, name=named, driver="gpu.pumice.io", **more)}


def both(node: str) -> list[Json]:
    """A card as a shared device and as a whole one, on one counter set."""
    draws = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "80Gi"}}}]}
    return [a_slice(shared_card("gpu-shared", **draws), device("gpu-whole", draws="80Gi"), pool="both", slices=2, nodeName=node),
            a_slice(pool="both", slices=2, nodeName=node, sharedCounters=[COUNTERS])]  # fmt: skip


def claiming(name: str, claim: str = "", template: str = "", scheduler: str = "volcano") -> Json:
    named = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    spec = {"schedulerName": scheduler, "resourceClaims": [{"name": "g", **named}], "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def told(name: str, text: str) -> Fault:
    """What the scheduler says of a pod that has no node."""
    said = {"type": "PodScheduled", "status": "False", "message": text}
    return patched(PODS, name, {"status": {"conditions": [said]}}, "default", "status")


def held(name: str, device: str, pool: str) -> Fault:
    async def make(c: DirectCluster) -> None:
        one = {**claim(asks()), "metadata": {"name": name}}
        await c.create(CLAIM, one, "default")
        result = {"request": "g", "driver": "gpu.pumice.io", "pool": pool, "device": device}
        allocated = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await c.patch(CLAIM, name, allocated, "default", subresource="status")

    return make


WORLDS: dict[str, dict[str, tuple[str, str, Fault]]] = {
    # what is wrong: (check, words of the finding, how it comes about)
    "many things": {
        "a kind is not defined": ("kinds", "not defined: jobflows.flow", deleted(CRDS, "jobflows.flow.volcano.sh")),
        "an old definition drops a field": ("kinds", "drops spec.dequeueStrategy", defined(
            "queues.scheduling.volcano.sh", lambda v: fields(v, "spec").pop("dequeueStrategy"))),
        "an old definition refuses a value": ("kinds", "refuses status.phase: Completed", defined(
            "podgroups.scheduling.volcano.sh", lambda v: fields(v, "status")["phase"]["enum"].remove("Completed"))),
        "a foreign definition has more": ("kinds", "spec.speed are stored, and nobody", defined(
            "hypernodes.topology.volcano.sh", lambda v: fields(v, "spec").update(speed={"type": "string"}))),
        "a kind is served as another version": ("kinds", "not served as v1alpha1, only as v1alpha2", anew(
            "commands.bus.volcano.sh", "v1alpha2")),
        "a status has no door": ("kinds", "lacks a subresource for its status", defined(
            "jobs.batch.volcano.sh", lambda v: v.pop("subresources"))),
        "a policy is missing": ("policies", "volcano-own-node are not there", deleted(POLICIES, "volcano-own-node")),
        "Volcano's scheduler runs beside ours": ("schedulers", "2 schedulers take the pods of schedulerName volcano", made(
            workload("Deployment", "upstream", "docker.io/volcanosh/vc-scheduler:v1.12.0", args=("--v=3",)))),
        "Volcano's controller runs beside ours": ("daemons", "2 of one kind work on the same objects", made(
            workload("Deployment", "controllers", "docker.io/volcanosh/vc-controller-manager:v1.12.0"))),
        "replicas choose none among them": ("daemons", "has 2 replicas, and none of them waits", patched(
            DEPLOYMENTS, "volcano-controllers", {"spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "volcano-controllers", "image": "pumice/pumice:0.1.0", "args": ["controller"]}]}}}}, SYSTEM)),
        "HAMi's webhook takes pods away": ("hami", "HAMi's webhook hami-webhook sends pods", made(HAMI_HOOK)),
        "a webhook's Service is not there": ("webhooks", "no Service volcano-system/hami-scheduler; what it would say", made()),
        "another plugin hands the cards out whole": (
            "plugins", "nvidia.com/gpu and volcano.sh/vgpu-number: each", lambda c: pod_of(c, NVIDIAS, NODE)),
        "Volcano's plugin and ours serve one resource": ("plugins", "on n2: Pumice's device plugin", all_of(
            a_node("n2"), lambda c: pod_of(c, VOLCANOS, "n2"))),
        "an account has lost its binding": ("rights", "volcano-vgpu-monitor in kube-system may not create events", deleted(
            BINDINGS, "volcano-vgpu-monitor")),
        "a plugin of the scheduler is misspelt": ("scheduler-config", "unknown plugin 'binpak'", scheduler_conf(
            lambda text: text.replace("binpack", "binpak"))),
        "NPUs are switched on without a plugin": ("modes", "AscendHAMiVNPUEnable is true, and no plugin", scheduler_conf(
            lambda text: text.replace("VGPUEnable: true", "VGPUEnable: true\n      deviceshare.AscendHAMiVNPUEnable: true"))),
        "the device ConfigMap cannot be meant": ("device-config", "gpuMemoryFactor", configured(
            names.DEVICE_CONFIGMAP, names.DEVICE_CONFIG_KEY, "nvidia: {gpuMemoryFactor: many}")),
        "the NPUs' ConfigMap is empty": ("device-config", "hami-scheduler-device: it is empty", made({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.NPU_CONFIGMAP, "namespace": KUBE},
            "data": {names.DEVICE_CONFIG_KEY: ""}})),
        "the nodes' ConfigMap is no JSON": ("device-config", "no JSON", configured(names.NODE_CONFIGMAP, "config.json", "{")),
        "a RuntimeClass is named and not there": ("runtime-classes", "names the RuntimeClass nvidia", patched(
            DAEMON_SETS, "volcano-device-plugin", {"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}}, KUBE)),
        "a node lost its plugin": ("nodes", "node n3 announces cards", a_node("n3", None, offered="0")),
        "a node with cards is served by nobody": ("nodes", "node n4 has cards by its label", a_node(
            "n4", None, notes={}, labels={"nvidia.com/gpu.present": "true"})),
        "a node has not the runtime": ("nodes", "is not ready: RunContainerError: unknown runtime", a_node("n5", said=WAITS)),
        "a plugin has not registered": ("nodes", "volcano-device-plugin-n6) runs, and the node offers no", a_node(
            "n6", offered="0")),
        "a plugin is silent": ("nodes", "says nothing of its cards", a_node("n7", notes={})),
        "a scheduler waits for a handshake": ("nodes", "node n8: a scheduler has given up", a_node("n8", notes={
            names.NODE_VGPU_REGISTER: REGISTER, names.NODE_VGPU_HANDSHAKE: "Deleted_2026.08.01 10:00:00"})),
    },
    "empty words": {
        "the device ConfigMap holds nothing but a comment": (
            "device-config", "volcano-vgpu-device-config: it is empty", configured(
                names.DEVICE_CONFIGMAP, names.DEVICE_CONFIG_KEY, "# nothing\n")),
        "another has not its key": ("device-config", "hami-scheduler-device: it has no key device-config.yaml", made({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.NPU_CONFIGMAP, "namespace": KUBE},
            "data": {"devices.yaml": "nvidia: {}"}})),
        "the scheduler's configuration is empty": ("scheduler-config", "there is nothing in it", configured(
            names.SCHEDULER_CONFIGMAP, names.SCHEDULER_CONF_KEY, "", SYSTEM)),
        "nobody says what is shared": ("modes", "no scheduler with a configuration is there", made()),
    },
    "half of it": {
        "no controller works": ("daemons", "no controller works", deleted(DEPLOYMENTS, "volcano-controllers", SYSTEM)),
        "no admission server works": ("daemons", "no admission server works", all_of(
            deleted(DEPLOYMENTS, "volcano-admission", SYSTEM), deleted(HOOKS, "volcano-admission-service-queues-validate"))),
        "nobody is asked": ("webhooks", "no webhook is there", made()),
        "no plugin runs": ("plugins", "no device plugin runs", all_of(
            deleted(DAEMON_SETS, "volcano-device-plugin", KUBE), deleted(PODS, f"volcano-device-plugin-{NODE}", KUBE))),
        "the switch has no plugin": ("modes", "VGPUEnable is true, and no plugin serves", made()),
        "no node has a plugin to be looked at": ("nodes", "no device plugin is there: nothing was looked at", made()),
    },
    "no scheduler": {
        "nobody takes Volcano's pods": ("schedulers", "no scheduler takes the pods", patched(
            DEPLOYMENTS, "volcano-scheduler", {"spec": {"replicas": 0}}, SYSTEM)),
        "nobody answers a webhook": ("webhooks", "volcano-admission-service is ready; what it is asked about is refused", patched(
            PODS, "volcano-admission-n1", {
                "status": {"conditions": [{"type": "Ready", "status": "False"}]}}, SYSTEM, "status")),
        "HAMi's scheduler runs beside": ("hami", "its pods' cards are not in our books", made(HAMI)),
    },
    "no configuration": {
        "the scheduler is not ready": ("schedulers", "is not ready: it places nothing", lambda c: status(
            c, workload("Deployment", "volcano-scheduler", ""), {"readyReplicas": 0})),
        "the scheduler has no configuration": ("scheduler-config", "there is no volcano-scheduler.conf", lambda c: c.delete(
            CONFIGMAPS, names.SCHEDULER_CONFIGMAP, SYSTEM)),
        "nobody says what is shared": ("modes", "no scheduler with a configuration is there", made()),
        "both book the same chips": ("hami", "both book the chips of n9 by the same annotations", all_of(made(HAMI), a_node(
            "n9", workload("DaemonSet", "npus", "projecthami/ascend-device-plugin:v1.4.0", space=KUBE), notes={}))),
        "both plugins of NPUs run on one node": ("plugins", "huawei.com/Ascend* and huawei.com/npu-core: each", lambda c: pod_of(
            c, workload("DaemonSet", "mind", "ascend-k8sdeviceplugin:v7.0.0", space=KUBE), "n9")),
    },
    "a broken configuration": {
        "the scheduler refuses its file": ("scheduler-config", "unknown action", scheduler_conf(
            lambda text: text.replace("backfill", "fill"))),
        "two schedulers of different names": ("schedulers", "place pods with cards side by side", made(workload(
            "Deployment", "upstream", "docker.io/volcanosh/vc-scheduler:v1.12.0", args=("--scheduler-name", "other")))),
    },
    "claims": {
        "a pool is half written": ("claims", "incomplete, generation 2: 1 of 2 slices", made(
            a_slice(shared_card(), pool="n1", slices=2, generation=2))),
        "no class of ours": ("claims", "no DeviceClass gpu.pumice.io", made()),
        "a class is not there": ("claims", "there is no DeviceClass gpu, which default/c", made(
            {"apiVersion": CLAIMS, "kind": "ResourceClaim", **claim(asks()), "metadata": {"name": "c", "namespace": "default"}})),
        "a node gives nothing": ("claims", "nodes c1 are to give their cards by claim, and no slice", a_node(
            "c1", notes={names.NODE_VGPU_REGISTER: REGISTER}, labels={"pumice.io/claims": "on"})),
        "annotated pods are on a card": ("claims", "devices of nodes c2 are closed to claims: pods with annotated shares", all_of(
            a_node("c2", labels={"pumice.io/claims": "on"}), made(a_slice(shared_card(taints=[
                {"key": "gpu.pumice.io/device-plugin", "effect": "NoSchedule"}]), pool="c2", nodeName="c2")))),
        "another scheduler places where cards are published twice": (
            "claims", "another scheduler places default/theirs: up to Kubernetes 1.36.1", all_of(
                made(*both("c2")), made(claiming("theirs", "gone", scheduler="default-scheduler")))),
        "a pod names a claim that is not there": ("claims", "(default/theirs): there is no ResourceClaim gone", made()),
        "a pod waits for its template": ("claims", "(default/b): there is no ResourceClaimTemplate later", made(
            claiming("b", template="later"))),
        "pods wait for room": ("claims", "2 pods wait for claims (default/d, default/e): no room: 1 Gi of 80", all_of(
            *(made(claiming(name, "c")) for name in "de"), *(told(name, "no room: 1 Gi of 80") for name in "de"))),
        "a device is given twice": ("claims", "two schedulers allocate", all_of(
            *(held(name, "gpu-whole", "both") for name in "xy"))),
    },
    "a switch is off": {
        "the plugin serves what the scheduler does not": ("modes", "VGPUEnable is not true: no pod gets any", scheduler_conf(
            lambda text: text.replace("VGPUEnable: true", "VGPUEnable: false"))),
        "pods are moved without the right to evict": ("rights", "names the action defrag, and its account volcano-scheduler",
            scheduler_conf(lambda text: re.sub('actions: "(.*)"', r'actions: "\1, defrag"', text))),
        "the scheduler shares nothing": ("scheduler-config", "deviceshare shares nothing", made()),
    },
}  # fmt: skip


async def cluster_of(world: str) -> DirectCluster:
    cluster = await memory_cluster(SystemClock())
    await install(cluster)
    for _, _, fault in WORLDS.get(world, {}).values():
        await fault(cluster)
    return cluster


@cache
def examined(world: str = "") -> ClusterFacts:
    async def run() -> ClusterFacts:
        return await look(await cluster_of(world))

    return asyncio.run(run())


class Remembered(DirectCluster):
    """Answers as it was answered before, but that chance has taken the value of some fields: for nothing Go writes null."""

    def __init__(self, before: DirectCluster) -> None:
        super().__init__(before.api, before.clock)
        self.answers: dict[tuple[str, str, str], bytes | ApiError] = {}
        self.chance, self.share = random.Random(0), 0.0

    async def request(self, verb: str, path: str, *, body: bytes | None = None, **options: Any) -> bytes:
        requested = (verb, path, str(body))
        if requested not in self.answers:
            try:
                self.answers[requested] = await super().request(verb, path, body=body, **options)
            except ApiError as error:
                self.answers[requested] = error
        if isinstance(answer := self.answers[requested], ApiError):
            raise answer
        said = json.loads(answer)
        return json.dumps({key: self.with_nulls(value) for key, value in said.items()}).encode() if self.share else answer

    def with_nulls(self, value: Any) -> Any:
        if self.chance.random() < self.share:
            return None
        if isinstance(value, dict):
            return {key: self.with_nulls(below) for key, below in value.items()}
        return [self.with_nulls(below) for below in value] if isinstance(value, list) else value


def troubles(facts: ClusterFacts) -> list[tuple[str, str, str]]:
    return [(name, f.text, f.repair) for name, found in examine(CHECKS, facts) for f in found if f.state is not State.OK]


def test_on_a_cluster_that_is_as_it_must_be_every_check_says_so(capsys):
    facts = examined()
    assert troubles(facts) == []
    assert report_cluster(facts, Output.JSON) is False
    reported = json.loads(capsys.readouterr().out)
    assert len(reported["findings"]) == len(examine(CHECKS, facts)) > 10
    assert {one["program"] for one in reported["programs"]} == {f"Pumice's {role}" for role in (
        "scheduler", "controller", "admission server", "device plugin", "monitor")}  # fmt: skip
    assert (reported["nodes"], reported["bad"], len(reported["kinds"])) == (1, 0, 8)


@pytest.mark.parametrize(("world", "fault"), [(world, fault) for world, faults in WORLDS.items() for fault in faults])
def test_each_fault_is_found_by_its_check_with_its_repair(world, fault, capsys):
    check, words, _ = WORLDS[world][fault]
    facts = examined(world)
    found = [(name, repair) for name, text, repair in troubles(facts) if words in text]
    assert [name for name, _ in found] == [check], [text for name, text, _ in troubles(facts) if name == check]
    assert all(repair for _, repair in found)
    report_cluster(facts, Output.TEXT)
    assert words in capsys.readouterr().out


def test_with_the_right_to_evict_the_action_defrag_is_well():
    async def run() -> ClusterFacts:
        cluster = await cluster_of("")
        await scheduler_conf(lambda text: re.sub('actions: "(.*)"', r'actions: "\1, defrag"', text))(cluster)
        await create(cluster, *manifest("volcano-defrag.yml"))
        return await look(cluster)

    facts = asyncio.run(run())
    assert "defrag" in str(facts.scheduler_conf)
    assert troubles(facts) == []


def test_where_faults_are_made_nothing_else_is_found():
    for world, faults in WORLDS.items():
        reported = [words for _, words, _ in faults.values()]
        assert [text for _, text, _ in troubles(examined(world)) if not any(words in text for words in reported)] == []


def test_kinds_that_nobody_here_reads_may_be_missing():
    """Volcano's older versions have none of them."""
    unread = ("numatopologies.nodeinfo.volcano.sh", "nodeshards.shard.volcano.sh", "colocationconfigurations.config.volcano.sh")

    async def run() -> ClusterFacts:
        cluster = await memory_cluster(SystemClock())
        here = DirectCluster(cluster.api, SystemClock())
        await create(here, *(kind for kind in volcano_kinds() if kind["metadata"]["name"] not in unread))
        return await look(here)

    (found,) = [found for name, found in examine(CHECKS, asyncio.run(run())) if name == "kinds"]
    assert {finding.state for finding in found} == {State.OK}


def test_of_what_is_not_there_nothing_is_said_to_be_well():
    """A cluster with Volcano's kinds, and nothing else of it."""

    async def run() -> ClusterFacts:
        cluster = await memory_cluster(SystemClock())
        here = DirectCluster(cluster.api, SystemClock())
        await create(here, *volcano_kinds())
        return replace(await look(here), kubernetes="v1.36.1")

    found = dict(examine(CHECKS, asyncio.run(run())))
    well = {name for name, findings in found.items() if {finding.state for finding in findings} == {State.OK}}
    assert well == {"kubernetes", "kinds", "hami", "claims"}, "these are there, or are well where they are not"
    assert all(finding.repair for findings in found.values() for finding in findings if finding.state is not State.OK)
    of = {name: [(finding.state, finding.text) for finding in findings] for name, findings in found.items()}
    assert (State.BAD, "no controller works: Jobs get no pods, and nobody looks after PodGroups and queues") in of["daemons"]
    assert of["plugins"][0][0] is State.WARNING
    assert of["rights"][0] == (State.UNKNOWN, "no daemon of ours is there: nothing was looked at")


def test_who_may_read_nothing_is_told_so_and_nothing_is_called_well_or_wrong_for_it():
    async def run() -> ClusterFacts:
        cluster = await memory_cluster(SystemClock())
        return await look(DirectCluster(cluster.api, SystemClock(), user=User("nobody", groups=("system:authenticated",))))

    facts = asyncio.run(run())
    states = {name: {f.state for f in found} for name, found in examine(CHECKS, facts)}
    assert {name for name, seen in states.items() if State.UNKNOWN in seen} == {
        "kinds", "policies", "schedulers", "daemons", "hami", "plugins", "rights", "scheduler-config", "device-config", "modes",
        "webhooks", "runtime-classes", "nodes", "claims",
    }  # fmt: skip
    assert not any(seen & {State.BAD, State.WARNING} for seen in states.values())


def test_a_cluster_of_one_process_has_its_daemons_inside_and_a_node_that_offers_shares_its_plugin_somewhere():
    facts = replace(examined(), workloads=(), plugins=())
    assert facts.in_one_process
    assert troubles(facts) == []
    assert {"schedulers", "daemons", "plugins"} < {name for name, _, _ in troubles(replace(facts, kubernetes="v1.36.1"))}
    bare = replace(facts, scheduler_conf=None)
    assert {"schedulers", "daemons", "plugins"} < {name for name, _, _ in troubles(bare)}, "pumice up --bare has none"


def test_an_old_api_server_obeys_no_policies():
    facts = replace(examined(), kubernetes="v1.28.3")
    assert [name for name, _, repair in troubles(facts) if "--enabled-admission" in repair] == ["kubernetes"]
    assert [name for name, _, _ in troubles(replace(facts, kubernetes="x"))] == ["kubernetes"]


def test_a_daemon_inside_its_pod_asks_for_itself():
    """A user without rights over reviews may still review his own rights."""

    async def run() -> tuple[ClusterFacts, ClusterFacts]:
        cluster = await memory_cluster(SystemClock())
        await install(cluster)
        user = User(f"system:serviceaccount:{KUBE}:volcano-vgpu-monitor", groups=(
            "system:serviceaccounts", f"system:serviceaccounts:{KUBE}", "system:authenticated"))  # fmt: skip
        his, all_of_them = DirectCluster(cluster.api, SystemClock(), user=user), examined().workloads
        monitor = next(one for one in all_of_them if one.name == "volcano-vgpu-monitor")
        return await review(his, ClusterFacts(workloads=[monitor])), await review(his, ClusterFacts(workloads=all_of_them))

    alone, with_others = asyncio.run(run())
    assert (alone.denied, alone.unreviewed) == ({}, "")
    assert "subjectaccessreviews" in with_others.unreviewed
    assert [(name, found[0].state) for name, found in examine(CHECKS, with_others) if name == "rights"] == [
        ("rights", State.UNKNOWN)]  # fmt: skip


def test_values_that_are_null_are_values_that_are_not_there(capsys):
    """Lists without items, items without metadata, fields without a value, wherever: what is whole beside them is examined."""

    async def run() -> None:
        cluster = Remembered(await cluster_of("many things"))
        await look(cluster)
        for seed in range(36):
            cluster.chance, cluster.share = random.Random(seed), (0.0001, 0.001, 0.01, 0.05, 0.3, 1.0)[seed % 6]
            try:
                report_cluster(await look(cluster), Output.JSON)
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
            assert json.loads(capsys.readouterr().out)["findings"]

    asyncio.run(run())


def test_the_command_that_explains_a_pod_that_waits_can_be_typed() -> None:
    repairs = {repair for name, _, repair in troubles(examined("claims")) if repair.startswith("pumice explain")}
    assert "pumice explain pod d -n default" in repairs


def test_nodes_that_give_cards_by_claim_want_an_api_server_that_serves_claims() -> None:
    marked = {"metadata": {"name": "n1", "labels": {"pumice.io/claims": "on"}}}
    facts = replace(examined(), claims=ClaimFacts(), nodes=[marked])
    assert [text for name, text, _ in troubles(facts) if name == "claims"] == [
        "nodes n1 give their cards by claim, and this API server does not serve resource.k8s.io/v1"
    ]
    assert not [one for one in troubles(replace(facts, nodes=())) if one[0] == "claims"], "an older cluster, and nobody minds"
