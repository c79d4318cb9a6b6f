"""Looks at a cluster, once, by its API server. Changes nothing: of what may not be read it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from pumice.adapters.kube.verbs import Verbs
from pumice.apps.doctor.cluster import shipped
from pumice.apps.doctor.cluster.claims import has_both
from pumice.apps.doctor.cluster.facts import ClaimFacts, ClusterFacts, PluginPod, Workload
from pumice.apps.doctor.cluster.shipped import Daemon, Right
from pumice.model.errors import BadInput
from pumice.node.findings import ConfigText
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.wire import kinds, names
from pumice.wire.kinds import CONFIGMAPS, PODS, SERVICES
from pumice.wire.kubernetes import ADMISSION, AUTHENTICATION, DEVICES, NODE_GROUP
from pumice.wire.objects import condition, is_ready
from pumice.wire.programs import Maker, Role, programs
from pumice.wire.reviews import ACCESS_REVIEWS, OWN_ACCESS_REVIEWS, access_review, is_allowed, own_access_review
from pumice.wire.scheduler_conf import parse_scheduler_conf

LISTED: Final = (
    kinds.CRDS,
    Resource(ADMISSION, "v1", "validatingadmissionpolicies", namespaced=False),
    Resource(ADMISSION, "v1", "mutatingadmissionpolicies", namespaced=False),
    Resource(ADMISSION, "v1", "mutatingwebhookconfigurations", namespaced=False),
    Resource(ADMISSION, "v1", "validatingwebhookconfigurations", namespaced=False),
    kinds.DEPLOYMENTS,
    kinds.DAEMON_SETS,
    kinds.STATEFUL_SETS,
    Resource(NODE_GROUP, "v1", "runtimeclasses", namespaced=False),
    kinds.NODES,
)
CLAIMS: Final = (kinds.DEVICE_CLASSES, kinds.RESOURCE_SLICES, kinds.RESOURCE_CLAIMS, kinds.RESOURCE_CLAIM_TEMPLATES)
MAY_BE_ABSENT: Final = frozenset(("mutatingadmissionpolicies", "validatingadmissionpolicies"))
"""Kinds that older API servers do not serve."""
KINDS: Final = {"deployments": "Deployment", "daemonsets": "DaemonSet", "statefulsets": "StatefulSet"}
HOOKS: Final = {"mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
                "validatingwebhookconfigurations": "ValidatingWebhookConfiguration"}  # fmt: skip
CONFIGS: Final = {
    names.DEVICE_CONFIGMAP: names.DEVICE_CONFIG_KEY, names.NPU_CONFIGMAP: names.DEVICE_CONFIG_KEY,
    names.NODE_CONFIGMAP: names.NODE_CONFIG_KEY, names.NPU_NODE_CONFIGMAP: names.NPU_NODE_CONFIG_KEY,
}  # fmt: skip
DEFRAG: Final = "defrag"
"""The action that evicts pods by the Eviction API."""
Lists = dict[str, list[Json]]


async def look(cluster: Verbs) -> ClusterFacts:
    """Raises ApiError where the API server does not answer at all."""
    lists, unread = await _lists(cluster, [(resource, "") for resource in LISTED])
    found = tuple(workload for plural in KINDS for workload in _workloads(KINDS[plural], lists[plural]))
    spaces = sorted({names.SYSTEM_NAMESPACE, names.DEVICE_CONFIG_NAMESPACE, *(one.namespace for one in found)})
    hooks = tuple({**item, "kind": kind} for plural, kind in HOOKS.items() for item in lists[plural])
    services = sorted({(str(s.get("namespace")), str(s.get("name"))) for config in hooks for hook in config.get("webhooks") or ()
                       if isinstance(s := (hook.get("clientConfig") or {}).get("service"), dict)})  # fmt: skip
    pods, missing = await _lists(cluster, [(PODS, space) for space in sorted({*spaces, *(space for space, _ in services)})])
    facts = ClusterFacts(
        kubernetes=await _version(cluster),
        unread={**unread, **missing},
        definitions={item["metadata"]["name"]: item for item in lists["customresourcedefinitions"]},
        wanted=shipped.kinds(),
        policies=frozenset(item["metadata"]["name"] for plural in sorted(MAY_BE_ABSENT) for item in lists[plural]),
        workloads=found,
        plugins=tuple(_plugins(pods["pods"])),
        nodes=tuple(lists["nodes"]),
        runtime_classes=frozenset(item["metadata"]["name"] for item in lists["runtimeclasses"]),
        webhooks=hooks,
        unbacked=await _unbacked(cluster, services, pods["pods"]) if not missing else {},
    )
    facts = await _with_claims(cluster, await _with_configs(cluster, facts))
    return await review(cluster, facts)


async def _version(cluster: Verbs) -> str:
    try:
        return str(msgspec.json.decode(await cluster.request("GET", "/version")).get("gitVersion", ""))
    except (ApiError, msgspec.MsgspecError, AttributeError):
        return ""


async def _lists(cluster: Verbs, wanted: Sequence[tuple[Resource, str]]) -> tuple[Lists, dict[str, str]]:
    """The objects by plural, and the reasons for kinds that could not be listed."""
    answers = await asyncio.gather(*(cluster.list(*one) for one in wanted), return_exceptions=True)
    lists: Lists = {resource.plural: [] for resource, _ in wanted}
    unread: dict[str, str] = {}
    for (resource, _), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, ApiError):
            if answer.code == 0:
                raise answer
            if not (answer.code == 404 and resource.plural in MAY_BE_ABSENT):
                unread[resource.plural] = answer.message
        elif isinstance(answer, BaseException):
            raise answer
        else:
            lists[resource.plural] += _named(answer)
    return lists, unread


def _named(answer: Json) -> Iterable[Json]:
    """The items by which one can tell of them. Others write null for what is empty, and what is null is not there."""
    return [item for item in _without_nulls(answer).get("items", ()) if item.get("metadata", {}).get("name")]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    return [_without_nulls(below) for below in value if below is not None] if isinstance(value, list) else value


def _workloads(kind: str, items: Iterable[Json]) -> Iterable[Workload]:
    for item in items:
        spec, meta, status = item.get("spec") or {}, item["metadata"], item.get("status") or {}
        pod = (spec.get("template") or {}).get("spec") or {}
        wanted = status.get("desiredNumberScheduled", 0) if kind == "DaemonSet" else spec.get("replicas", 1)
        ready = status.get("numberReady", 0) if kind == "DaemonSet" else status.get("readyReplicas", 0)
        for program, image in programs(pod):
            yield Workload(kind, meta.get("namespace", ""), meta["name"], program, image,
                           pod.get("serviceAccountName") or pod.get("serviceAccount") or "default",
                           pod.get("runtimeClassName") or "", int(wanted or 0), int(ready or 0))  # fmt: skip


def _plugins(pods: Iterable[Json]) -> Iterable[PluginPod]:
    for pod in pods:
        spec, meta, status = pod.get("spec") or {}, pod["metadata"], pod.get("status") or {}
        node = spec.get("nodeName")
        if not node or meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
            continue
        for program, image in programs(spec):
            if program.role is Role.PLUGIN:
                key = f"{meta.get('namespace', '')}/{meta['name']}"
                yield PluginPod(key, node, program, image, is_ready(pod), _why_not(pod))


def _why_not(pod: Json) -> str:
    """The kubelet's words: of a container that waits or has ended, else of the pod."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            if said := (container.get("state") or {}).get(state):
                return ": ".join(filter(None, (said.get("reason"), said.get("message"))))
    return str(condition(pod, "Ready").get("message") or "")


async def _unbacked(cluster: Verbs, services: Sequence[tuple[str, str]], pods: Sequence[Json]) -> dict[str, str]:
    """By the Services' selectors, for the pods are what answers."""
    found: dict[str, str] = {}
    for space, name in services:
        try:
            selector = _without_nulls(await cluster.get(SERVICES, name, space)).get("spec", {}).get("selector")
        except ApiError as error:
            if error.code == 404:
                found[f"{space}/{name}"] = f"there is no Service {space}/{name}"
            continue
        if selector and not any(_answers(pod, space, selector) for pod in pods):
            found[f"{space}/{name}"] = f"no pod behind the Service {space}/{name} is ready"
    return found


def _answers(pod: Json, space: str, selector: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return pod["metadata"].get("namespace") == space and selector.items() <= labels.items() and is_ready(pod)


async def _with_configs(cluster: Verbs, facts: ClusterFacts) -> ClusterFacts:
    scheduler = next((one for one in facts.of(Role.SCHEDULER) if one.program.maker is not Maker.HAMI), None)
    home = scheduler.namespace if scheduler is not None else names.SYSTEM_NAMESPACE
    unread = dict(facts.unread)

    async def text(name: str, key: str, space: str) -> ConfigText | None:
        try:
            found = await cluster.get(CONFIGMAPS, name, space)
        except ApiError as error:
            if error.code != 404:
                unread["configmaps"] = error.message
            return None
        data = found.get("data") or {}
        return ConfigText(f"{space}/{name}", data.get(key))

    conf = await text(names.SCHEDULER_CONFIGMAP, names.SCHEDULER_CONF_KEY, home)
    if conf is None and "configmaps" not in unread:
        conf = ConfigText(f"{home}/{names.SCHEDULER_CONFIGMAP}", None)
    kept = await text(f"{names.SCHEDULER_CONFIGMAP}{names.LAST_GOOD}", names.SCHEDULER_CONF_KEY, home)
    devices = [await text(name, key, names.DEVICE_CONFIG_NAMESPACE) for name, key in CONFIGS.items()]
    written = tuple(config for config in devices if config is not None)
    good = kept is not None and bool(kept.text)
    return replace(facts, scheduler_conf=conf, last_good=good, unread=unread, device_configs=written)


async def _with_claims(cluster: Verbs, facts: ClusterFacts) -> ClusterFacts:
    try:
        await cluster.request("GET", f"/apis/{DEVICES}/v1")
    except ApiError as error:
        if error.code == 404:
            return facts
    lists, missing = await _lists(cluster, [(resource, "") for resource in CLAIMS])
    slices, pods = lists["resourceslices"], list[Json]()
    if not missing:
        try:
            without_node = "" if has_both(slices) else "spec.nodeName="
            pods = list(_named(await cluster.list(PODS, "", field_selector=without_node)))
        except ApiError as error:
            missing = {"pods": error.message}
    found = ClaimFacts(True, lists["deviceclasses"], slices, lists["resourceclaims"], lists["resourceclaimtemplates"],
                       [pod for pod in pods if (pod.get("spec") or {}).get("resourceClaims")])  # fmt: skip
    return replace(facts, claims=found, unread={**missing, **facts.unread})


# -- rights -----------------------------------------------------------------------------------------------------------

# May the daemons' accounts do what their code does? The API server is asked, right by right, as it asks itself.

ME: Final = Resource(AUTHENTICATION, "v1", "selfsubjectreviews", namespaced=False)
AT_ONCE: Final = 16


async def review(cluster: Cluster, facts: ClusterFacts) -> ClusterFacts:
    """With what is denied to each account. Who may ask for nobody else still asks for himself: inside a daemon's pod."""
    moves = _moves_pods(facts.scheduler_conf)
    questions = sorted({(one.namespace, one.account, right) for one in facts.workloads for right in needed(one, moves)})
    me = await _me(cluster)
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(space: str, account: str, right: Right) -> tuple[str, Right, bool | ApiError]:
        async with slots:
            try:
                return f"{space}/{account}", right, await _allowed(cluster, f"system:serviceaccount:{space}:{account}", right, me)
            except ApiError as error:
                return f"{space}/{account}", right, error

    denied: dict[str, list[str]] = {}
    unreviewed = ""
    for account, right, allowed in await asyncio.gather(*(ask(*question) for question in questions)):
        if isinstance(allowed, ApiError):
            unreviewed = unreviewed or allowed.message
        elif not allowed:
            denied.setdefault(account, []).append(str(right))
    return replace(facts, denied=denied, unreviewed=unreviewed)


def needed(one: Workload, moves: bool) -> Iterator[Right]:
    """The rights that our manifest gives the daemon, in the namespace in which it runs; with those of the action defrag where its
    scheduler ``moves`` pods."""
    daemon = _shipped(one)
    if daemon is not None:
        for right in daemon.rights:
            yield replace(right, namespace=one.namespace) if right.namespace == daemon.namespace else right
        if moves and one.program.role is Role.SCHEDULER:
            yield from shipped.of_defrag()


def _moves_pods(conf: ConfigText | None) -> bool:
    """Return whether the scheduler's configuration names the action defrag; one that cannot be read has a finding of its own."""
    try:
        return conf is not None and conf.text is not None and DEFRAG in parse_scheduler_conf(conf.text).actions
    except BadInput:
        return False


def _shipped(one: Workload) -> Daemon | None:
    if one.program.maker is not Maker.OURS:
        return None
    alike = [daemon for daemon in shipped.daemons() if daemon.program.word == one.program.word]
    return next((daemon for daemon in alike if daemon.account == one.account), next(iter(alike), None))


async def _me(cluster: Cluster) -> str:
    try:
        answer = await cluster.create(ME, {"apiVersion": f"{AUTHENTICATION}/v1", "kind": "SelfSubjectReview"})
    except ApiError:
        return ""  # Kubernetes before 1.28 does not say
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))


async def _allowed(cluster: Cluster, user: str, right: Right, me: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    requested = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource, "name": right.name,
             "namespace": right.namespace}  # fmt: skip
    wanted = {key: word for key, word in requested.items() if word}
    if user == me:
        return is_allowed(await cluster.create(OWN_ACCESS_REVIEWS, own_access_review(wanted)))
    _, _, space, _ = user.split(":")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"]
    return is_allowed(await cluster.create(ACCESS_REVIEWS, access_review({"username": user, "groups": groups}, wanted)))
