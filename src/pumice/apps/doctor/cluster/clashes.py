"""Conflicts: schedulers of one name, upstream's daemons beside ours, several plugins of one node's devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pumice.apps.doctor.cluster.facts import ClusterFacts, PluginPod, Workload, unread
from pumice.node.findings import Finding, State
from pumice.wire import names
from pumice.wire.programs import CHIPS, HAMI_IGNORE, HAMI_WEBHOOK, Maker, Role

BAD, WARNING = State.BAD, State.WARNING
SHOWN = 3
WORKLOADS = ("deployments", "daemonsets", "statefulsets")
ABSENT = {
    Role.CONTROLLER: Finding(BAD, "no controller works: Jobs get no pods, and nobody looks after PodGroups and queues",
                             "kubectl apply -f deploy/manifests/volcano.yml"),
    Role.ADMISSION: Finding(WARNING, "no admission server works: Jobs and queues that cannot be meant are stored, and fail later",
                            "kubectl apply -f deploy/manifests/volcano-admission.yml"),
}  # fmt: skip


def schedulers(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, *WORKLOADS)
    found = facts.of(Role.SCHEDULER)
    by_name: dict[str, list[Workload]] = defaultdict(list)
    for one in found:
        for name in one.program.names:
            by_name[name].append(one)
    for name, takers in sorted(by_name.items()):
        if len(takers) > 1:
            yield Finding(BAD, f"{len(takers)} schedulers take the pods of schedulerName {name}: {_listed(takers)}; "
                          "they give the same cards away twice", _scale_down(takers))  # fmt: skip
    if _all_known(facts) and names.SCHEDULER_NAME not in by_name:
        yield Finding(BAD, f"no scheduler takes the pods of schedulerName {names.SCHEDULER_NAME}: they stay Pending",
                      "kubectl create -f deploy/manifests/volcano.yml")  # fmt: skip
    ours = [one for one in found if one.program.maker in (Maker.OURS, Maker.VOLCANO)]
    if len(ours) > 1 and not any(len(takers) > 1 for takers in by_name.values()):
        yield Finding(WARNING, f"{_listed(ours)} place pods with cards side by side: between two cycles neither knows what the "
                      "other has just given away", f"keep them on nodes of their own, or {_scale_down(ours)}")  # fmt: skip
    for one in found:
        if one.program.maker is Maker.OURS and not one.ready:
            yield Finding(BAD, f"{one} is not ready: it places nothing", f"{_logs(one)}; its /readyz names what it lacks")


def daemons(facts: ClusterFacts) -> Iterator[Finding]:
    """Controllers and admission servers, of which there is one; and replicas that would not choose one among them."""
    yield from unread(facts, *WORKLOADS)
    for role, missing in ABSENT.items():
        found = facts.of(role)
        if not found and _all_known(facts):
            yield missing
        if len(found) > 1:
            yield Finding(BAD, f"{len(found)} of one kind work on the same objects: {_listed(found)}", _scale_down(found))
        for one in found:
            if one.program.maker is Maker.OURS and not one.ready:
                yield Finding(BAD, f"{one} is not ready", _logs(one))
    for one in facts.workloads:
        if one.wanted > 1 and not one.program.elects and one.program.role in (Role.SCHEDULER, Role.CONTROLLER):
            text = f"{one} has {one.wanted} replicas, and none of them waits for the others"
            yield Finding(BAD, text, "give it --leader-elect")


def hami(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, *WORKLOADS)
    hooks = sorted({config["metadata"]["name"] for config in facts.webhooks for hook in config.get("webhooks") or ()
                    if str(hook.get("name", "")).endswith(f".{HAMI_WEBHOOK}")})  # fmt: skip
    found = facts.of(Role.SCHEDULER, Maker.HAMI)
    if hooks:
        text = f"HAMi's webhook {', '.join(hooks)} sends pods without a schedulerName that ask for its resources to its scheduler"
        mend = f"write schedulerName: {names.SCHEDULER_NAME} into them, or kubectl label namespace NAMESPACE {HAMI_IGNORE}"
        yield Finding(WARNING, text, f"{mend}; kubectl delete mutatingwebhookconfiguration {hooks[0]} once HAMi is gone")
    chips = [plugin for plugin in facts.plugins if plugin.program.devices == CHIPS]
    if found and chips and len(facts.of(Role.SCHEDULER)) > len(found):
        text = f"{_listed(found)} and Volcano's or ours both book the chips of {_nodes(chips)} by the same annotations"
        yield Finding(BAD, text, _scale_down(found))
    elif found and not hooks:
        yield Finding(WARNING, f"{_listed(found)} runs beside: its pods' cards are not in our books",
                      "keep its plugin and ours on nodes of their own")  # fmt: skip


def plugins(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "pods")
    if not facts.plugins and "pods" not in facts.unread and _all_known(facts):
        yield Finding(WARNING, "no device plugin runs: no node offers shares of cards or chips",
                      "kubectl apply -f deploy/manifests/volcano-vgpu-device-plugin.yml; or does its DaemonSet select no node, "
                      "or tolerate none?")  # fmt: skip
    there: dict[tuple[str, str], list[PluginPod]] = defaultdict(list)
    for plugin in facts.plugins:
        there[plugin.node, plugin.program.devices].append(plugin)
    alike: dict[str, list[str]] = defaultdict(list)
    for (node, devices), found in sorted(there.items()):
        if len(found) > 1:
            resources = {one.program.resource for one in found}
            what = f"all serve {resources.pop()}: the kubelet asks whoever registered last" if len(resources) == 1 else (
                f"hand {devices} out as {' and '.join(sorted(resources))}: each of them is given away twice")  # fmt: skip
            who = sorted(f"{one.program} ({one.image})" for one in found)
            alike[f"{' and '.join(who)} {what}"].append(node)
    for text, nodes in alike.items():
        where = ", ".join(nodes[:SHOWN]) + (f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else "")
        yield Finding(BAD, f"on {where}: {text}", "keep one of the two off these nodes, by a node selector of its DaemonSet")


def _all_known(facts: ClusterFacts) -> bool:
    """Return whether all that would be found was listed, so that what is not found is not there."""
    return not facts.in_one_process and not any(facts.unread.get(plural) for plural in WORKLOADS)


def _scale_down(found: list[Workload]) -> str:
    last = next((one for one in found if one.program.maker is not Maker.OURS), found[-1])
    return f"keep one: kubectl -n {last.namespace} scale {last.kind.lower()} {last.name} --replicas=0"


def _logs(one: Workload) -> str:
    return f"kubectl -n {one.namespace} logs {one.kind.lower()}/{one.name}"


def _listed(found: list[Workload]) -> str:
    return ", ".join(map(str, found))


def _nodes(pods: list[PluginPod]) -> str:
    return ", ".join(sorted({pod.node for pod in pods})[:SHOWN])
