"""The table of checks, and those that are of the API server itself: its version, policies, rights and webhooks.

Are the stored definitions of kinds the ones that our code knows? A field that a definition lacks is dropped in silence by the
API server, a value that it does not list is refused; status has its own door or has none (volcano.sh/apis batch/v1alpha1).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pumice.apps.doctor.cluster import shipped
from pumice.apps.doctor.cluster.claims import claims
from pumice.apps.doctor.cluster.configuration import device_config, modes, nodes, runtime_classes, scheduler_config
from pumice.apps.doctor.cluster.facts import ClusterFacts, PluginPod, Workload, unread
from pumice.node.findings import Check, Finding, State
from pumice.ports.cluster import Json
from pumice.wire import names
from pumice.wire.our_devices import CHIPS
from pumice.wire.programs import HAMI_IGNORE, HAMI_WEBHOOK, Maker, Role

PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"
FIELDS_SHOWN: Final = 5
Schema = Mapping[str, Any]


def kinds(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "customresourcedefinitions")
    if "customresourcedefinitions" in facts.unread:
        return
    if missing := [name for name in facts.wanted if name not in facts.definitions]:
        yield Finding(State.BAD, f"not defined: {', '.join(sorted(missing))}", "kubectl create -f deploy/manifests/crds")
    for name, ours in sorted(facts.wanted.items()):
        if (theirs := facts.definitions.get(name)) is not None:
            yield from _kind(name, ours, theirs)


def _kind(name: str, ours: Json, theirs: Json) -> Iterator[Finding]:
    mend = f"kubectl replace -f deploy/manifests/crds/{name.partition('.')[0]}.yaml (its objects stay)"
    conditions = {c.get("type"): c for c in (theirs.get("status") or {}).get("conditions") or () if isinstance(c, dict)}
    if (established := conditions.get("Established")) is not None and established.get("status") != "True":
        yield Finding(State.BAD, f"{name} is not served: {established.get('message') or established.get('reason')}", mend)
    there = versions_of(theirs)
    for version in ours["spec"]["versions"]:
        found = next((v for v in there if v.get("name") == version["name"] and v.get("served")), None)
        if found is None:
            served = ", ".join(v.get("name", "") for v in there if v.get("served"))
            yield Finding(State.BAD, f"{name} is not served as {version['name']}, only as {served or 'nothing'}", mend)
            continue
        if (wanted := _has_status(version)) != _has_status(found):
            door = "lacks a" if wanted else "has a"
            yield Finding(State.BAD, f"{name} {door} subresource for its status, against Volcano's: its status is not kept", mend)
        known, stored = schema_of(version), schema_of(found)
        if lost := list(unknown_fields(known, stored)):
            text = f"{name} is an older version: the API server drops {_several(lost)}"
            yield Finding(State.WARNING, text, mend)
        if refused := list(refused_values(known, stored)):
            yield Finding(State.WARNING, f"{name} is an older version: it refuses {_several(refused)}", mend)
        if more := list(unknown_fields(stored, known)):
            text = f"{name} is another version than ours: {_several(more)} are stored, and nobody here reads them"
            yield Finding(State.WARNING, text, f"take these fields out of the objects, or {mend}")


def versions_of(definition: Json) -> list[Json]:
    found: list[Json] = definition.get("spec", {}).get("versions", [])
    return found


def schema_of(version: Schema) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def unknown_fields(ours: Schema, theirs: Schema, path: str = "") -> Iterator[str]:
    """Fields that ``ours`` describes and that are dropped under ``theirs``."""
    if theirs.get(PRESERVED) or isinstance(theirs.get("additionalProperties"), bool):
        return
    known = theirs.get("properties") or {}
    free = theirs.get("additionalProperties")
    for key, below in (ours.get("properties") or {}).items():
        if not path and key in ("apiVersion", "kind", "metadata"):
            continue
        if key in known:
            yield from unknown_fields(below, known[key], f"{path}.{key}")
        elif free is None:
            yield f"{path}.{key}"[1:]
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(ours.get(key), Mapping) and isinstance(theirs.get(key), Mapping):
            yield from unknown_fields(ours[key], theirs[key], path + mark)


def refused_values(ours: Schema, theirs: Schema, path: str = "") -> Iterator[str]:
    """Values that ``ours`` lists and ``theirs``, which lists some, does not."""
    if ours.get("enum") and theirs.get("enum"):
        yield from (f"{path[1:]}: {value}" for value in ours["enum"] if value not in theirs["enum"])
    for key, below in (ours.get("properties") or {}).items():
        if key in (theirs.get("properties") or {}):
            yield from refused_values(below, theirs["properties"][key], f"{path}.{key}")
    if isinstance(ours.get("items"), Mapping) and isinstance(theirs.get("items"), Mapping):
        yield from refused_values(ours["items"], theirs["items"], f"{path}[]")


def _has_status(version: Schema) -> bool:
    return "status" in (version.get("subresources") or {})


def _several(words: list[str]) -> str:
    more = f" and {len(words) - FIELDS_SHOWN} more" if len(words) > FIELDS_SHOWN else ""
    return ", ".join(words[:FIELDS_SHOWN]) + more


BAD, WARNING, UNKNOWN = State.BAD, State.WARNING, State.UNKNOWN
POLICIES_SINCE: Final = 30
"""The minor version of Kubernetes whose API server obeys ValidatingAdmissionPolicies (Kubernetes 1.30 release notes)."""
OPTIONAL: Final = ("volcano-tenant-void",)
TENANTS: Final = "/tenants/validate"
"""The admission server's path that says what the policies of tenants say."""
SHOWN: Final = 6
NODES_SHOWN: Final = 3
WORKLOADS = ("deployments", "daemonsets", "statefulsets")
ABSENT = {
    Role.CONTROLLER: Finding(BAD, "no controller works: Jobs get no pods, and nobody looks after PodGroups and queues",
                             "kubectl apply -f deploy/manifests/volcano.yml"),
    Role.ADMISSION: Finding(WARNING, "no admission server works: Jobs and queues that make no sense are stored, and fail later",
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
    for text, there_too in alike.items():
        more = f" and {len(there_too) - NODES_SHOWN} more" if len(there_too) > NODES_SHOWN else ""
        where = ", ".join(there_too[:NODES_SHOWN]) + more
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
    return ", ".join(sorted({pod.node for pod in pods})[:NODES_SHOWN])


def _unless(what: str, there: Callable[[ClusterFacts], object]) -> Callable[[ClusterFacts], Finding | None]:
    """The finding where ``what`` is not there, so that nothing was looked at."""

    def lacking(facts: ClusterFacts) -> Finding | None:
        if there(facts) or facts.in_one_process:
            return None
        mend = "ask as somebody who may read it" if facts.unread else "install what is meant to be here"
        return Finding(UNKNOWN, f"no {what} {'was seen' if facts.unread else 'is there'}: nothing was looked at", mend)

    return lacking


def _kubernetes(facts: ClusterFacts) -> Iterator[Finding]:
    match = re.match(r"v?(\d+)\.(\d+)", facts.kubernetes)
    if match is None:
        yield Finding(UNKNOWN, f"the API server says that it is version {facts.kubernetes!r}")
    elif (int(match[1]), int(match[2])) < (1, POLICIES_SINCE):
        text = f"Kubernetes {facts.kubernetes} obeys no admission policies: anybody may write what the scheduler writes"
        yield Finding(WARNING, text, f"give the admission server --enabled-admission with {TENANTS}; 1.{POLICIES_SINCE} has them")


def _policies(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "validatingadmissionpolicies")
    if "validatingadmissionpolicies" in facts.unread:
        return
    requested = {str((hook.get("clientConfig") or {}).get("service", {}).get("path", "")) for config in facts.webhooks
             for hook in config.get("webhooks") or ()}  # fmt: skip
    missing: dict[str, list[str]] = {}
    for name, file in shipped.policies().items():
        if name not in facts.policies and name not in OPTIONAL and not (file.startswith("tenant") and TENANTS in requested):
            missing.setdefault(file, []).append(name)
    for file, lacking in sorted(missing.items()):
        yield Finding(WARNING, f"the policies {', '.join(lacking)} are not there: nobody keeps others from what {file} forbids",
                      f"kubectl create -f deploy/manifests/{file}")  # fmt: skip


def _rights(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.unreviewed:
        yield Finding(UNKNOWN, f"nobody says what the daemons may: {facts.unreviewed}",
                      "ask as somebody who may create subjectaccessreviews")  # fmt: skip
    of_defrag = {str(right) for right in shipped.of_defrag()}
    for account, all_denied in sorted(facts.denied.items()):
        space, _, name = account.partition("/")
        denied = [right for right in all_denied if right not in of_defrag]
        if len(denied) < len(all_denied):
            what = ", ".join(right for right in all_denied if right in of_defrag)
            text = f"the scheduler's configuration names the action defrag, and its account {name} in {space} may not {what}"
            mend = f"kubectl apply -f deploy/manifests/{shipped.DEFRAG}, for this account; or take the action out"
            yield Finding(BAD, f"{text}: it moves nobody", mend)
        if not denied:
            continue
        files = sorted({daemon.file for daemon in shipped.daemons() if daemon.account == name}) or ["volcano.yml"]
        more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
        yield Finding(BAD, f"the account {name} in {space} may not {', '.join(denied[:SHOWN])}{more}",
                      f"kubectl apply -f deploy/manifests/{files[0]} brings its roles and bindings")  # fmt: skip


def _webhooks(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    for config in facts.webhooks:
        kind, name = config["kind"].lower(), config["metadata"]["name"]
        for hook in config.get("webhooks") or ():
            client = hook.get("clientConfig") or {}
            service = client.get("service")
            if not isinstance(service, dict):
                continue
            who = f"{config['kind']} {name}, {hook.get('name')}"
            if (why := facts.unbacked.get(f"{service.get('namespace')}/{service.get('name')}")) is not None:
                fails = hook.get("failurePolicy", "Fail") == "Fail"
                end = "what it is asked about is refused" if fails else "what it would say is left out"
                mend = f"bring its daemon back, or kubectl delete {kind} {name}"
                yield Finding(BAD if fails else WARNING, f"{who}: {why}; {end}", mend)
            elif not client.get("caBundle"):
                text = f"{who} names no authority (caBundle): the API server trusts it only by its own system's certificates"
                yield Finding(WARNING, text, "look at the log of the daemon that registers it")


DAEMON: Final = _unless("daemon of ours", lambda facts: any(one.program.maker is Maker.OURS for one in facts.workloads))
CHECKS: Final = (
    Check("kubernetes", "the API server is one that obeys policies", _kubernetes),
    Check("kinds", "Volcano's kinds are defined as our code knows them", kinds),
    Check("policies", "the API server keeps tenants and nodes to what is theirs", _policies),
    Check("schedulers", "one scheduler takes Volcano's pods", schedulers),
    Check("daemons", "one controller and one admission server work", daemons),
    Check("hami", "HAMi's scheduler and webhook keep out of the way", hami),
    Check("plugins", "one plugin serves each node's devices", plugins),
    Check("rights", "the daemons' accounts may what their code does", _rights, DAEMON),
    Check("scheduler-config", "the scheduler's configuration is understood", scheduler_config,
          _unless("configuration of a scheduler", lambda facts: facts.scheduler_conf is not None and facts.scheduler_conf.text)),
    Check("device-config", "the ConfigMaps of devices and nodes are understood", device_config,
          _unless("ConfigMap of devices", lambda facts: facts.device_configs)),
    Check("modes", "every way of sharing has its switch and its plugin", modes,
          _unless("scheduler with a configuration",
                  lambda facts: facts.scheduler_conf is not None and facts.scheduler_conf.text and facts.of(Role.SCHEDULER))),
    Check("webhooks", "a webhook that is asked has somebody who answers", _webhooks,
          _unless("webhook", lambda facts: facts.webhooks)),
    Check("runtime-classes", "the RuntimeClasses that plugins name are there", runtime_classes, DAEMON),
    Check("nodes", "every node's plugin is ready and tells of its devices", nodes,
          _unless("device plugin", lambda facts: facts.plugins)),
    Check("claims", "claims find their classes, whole pools, and cards of one world", claims),
)  # fmt: skip
