"""The inputs of ``pumice simulate``: a cluster, who arrives, and the variants that are compared."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from pumice.audit.amounts import key_of
from pumice.cli.cluster_snapshot import SLICES, ClusterSnapshot, engine_of, trimmed
from pumice.cli.fits import documents_of, scheduled_by, templates
from pumice.cli.snapshot_source import Source, take_snapshot
from pumice.cli.streams import read, read_rows
from pumice.devices.lint.claims import READERS
from pumice.model.errors import BadInput, nearest
from pumice.simulation.changes import added, outages, queue_of, recut, with_policy, without
from pumice.simulation.generate import beside_cards, generate
from pumice.simulation.manifests import MODEL, Json
from pumice.simulation.play import Outage, Submission
from pumice.simulation.trace import Task, lists_nodes, nodes_of, tasks_of
from pumice.wire import names, volcano
from pumice.wire.document import safe_load_all
from pumice.wire.objects import Pod, convert
from pumice.wire.quantity import parse_quantity

BEGIN = 1_000_000_000.0
"""The time of day at which a play begins that has no dump."""
MOST_PODS = 10**6
"""The most pods that one workload of a manifest, or one list of a trace, may have."""
KINDS = {"Node": "nodes", "Queue": "queues", "PodGroup": "podGroups", "PriorityClass": "priorityClasses",
         "ResourceQuota": "resourceQuotas", "HyperNode": "hyperNodes", "PodDisruptionBudget": "disruptionBudgets",
         "DeviceClass": "deviceClasses", "ResourceSlice": "resourceSlices", "ResourceClaim": "resourceClaims",
         "ResourceClaimTemplate": "resourceClaimTemplates"}  # fmt: skip
"""Kinds of manifests that are part of the cluster; what has a pod template arrives."""
IGNORED = frozenset({"Namespace", "ConfigMap", "Service", "ServiceAccount", "Secret"})
"""Kinds that often stand beside others and of which nothing is said."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The options that say what is played."""

    dump: Path | None = None
    kubeconfig: Path | None = None
    traces: Sequence[Path] = ()
    manifests: Sequence[Path] = ()
    flows: Sequence[str] = ()
    policies: Sequence[str] = ()
    confs: Sequence[Path] = ()
    add: Sequence[str] = ()
    recut: Sequence[str] = ()
    without: Sequence[str] = ()
    fail: Sequence[str] = ()
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Variant:
    """One play: the cluster with its configuration, who arrives, and which nodes fail."""

    name: str
    case: ClusterSnapshot
    submissions: Sequence[Submission]
    outages: Sequence[Outage] = field(default_factory=tuple)


def variants_of(asked: Inputs) -> list[Variant]:
    """Read what was asked for. Raises BadInput where something of it cannot be."""
    traces = [(str(path), read_rows(path, MOST_PODS)) for path in asked.traces]
    found_there = [one for path in asked.manifests for one in _manifest(path)]
    case = _cluster(asked, traces, found_there)
    arriving = _arriving(asked, case, traces, found_there)
    changes = _changes(asked)
    found: list[tuple[str, ClusterSnapshot, set[str]]] = [("", case, set())]
    if changes:
        changed, gone = _changed(case, asked)
        found = [*found, (changes, changed, gone)] if case.objects.get("nodes") else [("", changed, gone)]
    if not found[0][1].objects.get("nodes"):
        raise BadInput("no nodes: give a cluster with --from, --kubeconfig, --trace, -f, or make one with --add")
    pods = sum(len(one.templates) for one in arriving) + sum(not p["spec"].get("nodeName") for p in case.objects.get("pods", ()))
    if not pods:
        raise BadInput("nobody arrives: give pods with --trace or -f, or --generate some; in a dump, none waits")
    until = max((one.at + (one.runs if one.runs < inf else 0.0) for one in arriving), default=0.0)
    return [
        Variant(" + ".join(filter(None, (what, change))) or "as configured", replace(variant, scheduler_conf=conf),
                [one for one in arriving if queue_of(one.templates[0]) not in gone],
                [outage for text in asked.fail for outage in outages(variant.objects, text, until, Random(asked.seed))])
        for change, variant, gone in found for what, conf in _configurations(asked, variant)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a manifest, and where it stands."""

    where: str
    value: Json

    def error(self, what: object) -> BadInput:
        return BadInput(f"{self.where}: {what}")

    def stands(self) -> str:
        """Return as which kind of a case file it is part of the cluster; empty for what arrives, and what has no part in it."""
        if self.value["kind"] == "Pod":  # of a cluster, as kubectl get -o yaml writes it, or one that is yet to come
            known = _mapping(self.value.get("metadata")).get("uid") or _mapping(self.value.get("spec")).get("nodeName")
            return "pods" if known else ""
        return KINDS.get(self.value["kind"], "")


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _manifest(path: Path) -> Iterator[Manifest]:
    """The objects of a file, those of lists one by one. Raises BadInput where something is none."""
    for document in documents_of(path, read(path)):
        where, value = f"{path}:{document.line()}", document.value
        listed = isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list)
        for number, item in enumerate(value["items"] if listed else [value] if value is not None else []):
            at = f"{path}:{document.line('items', number)}" if listed else where
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise BadInput(f"{at}: no object of Kubernetes: it has no kind")
            yield Manifest(at, item)


def _cluster(asked: Inputs, traces: Sequence[tuple[str, str]], manifests: Sequence[Manifest]) -> ClusterSnapshot:
    if asked.dump is not None or asked.kubeconfig is not None:
        case = take_snapshot(Source(file=asked.dump, kubeconfig=asked.kubeconfig))
    else:
        case = ClusterSnapshot(now=BEGIN, scheduler_conf=shipped_conf())
    objects = {kind: list(found) for kind, found in case.objects.items()}
    for file, text in traces:
        if lists_nodes(text):
            objects.setdefault("nodes", []).extend(nodes_of(text, file))
    held = {key_of(claim) for claim in objects.get("resourceClaims", ())}
    for one in manifests:
        kind = one.stands()
        found = _standing(one, kind) if kind else {}
        if found and not (kind == "resourceClaims" and key_of(found) in held):  # one of the cluster keeps its devices
            objects.setdefault(kind, []).append(found)
    case = replace(case, objects=objects, now=case.now or BEGIN)
    engine_of(case)  # what cannot be read is told before anything is played
    for kind in ("nodes", "pods", "queues"):
        keys = Counter(key_of(value) for value in objects.get(kind, ()))
        if twice := [key for key, number in keys.items() if number > 1]:
            raise BadInput(f"{kind[:-1]} {twice[0]} is there twice")
    for kind in ("nodes", "pods"):
        for value in objects.get(kind, ()):
            _check_quantities(value, f"{kind[:-1]} {key_of(value)}")
    return case


def _standing(one: Manifest, kind: str) -> Json:
    """An object of a manifest in the form of a case file."""
    meta = one.value.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise one.error("it has no metadata.name")
    try:
        if one.value["kind"] in READERS:
            READERS[one.value["kind"]](one.value)
        found = trimmed(one.value, SLICES[kind])
    except BadInput as error:
        raise one.error(error) from None
    except (msgspec.ValidationError, AttributeError, TypeError, ValueError) as error:
        raise one.error(f"no {one.value['kind']} that the API server would take: {error}") from None
    if kind == "pods":
        found["metadata"].setdefault("uid", f"{meta.get('namespace', 'default')}/{meta['name']}")
    elif kind in ("resourceClaims", "resourceClaimTemplates"):
        found["metadata"].setdefault("namespace", "default")
    return found


def _check_quantities(value: Json, what: str) -> None:
    """Refuse a node or a pod with an amount that is none: engine and auditor would read it otherwise, or not at all."""
    spec = value.get("spec") or {}
    amounts = [*((value.get("status") or {}).get(part) or {} for part in ("allocatable", "capacity")), spec.get("overhead") or {}]
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        amounts += [(container.get("resources") or {}).get(part) or {} for part in ("limits", "requests")]
    for resource, text in (item for each in amounts for item in each.items()):
        try:
            if parse_quantity(text) < 0:
                raise ValueError(f"{text!r} is negative")
        except ValueError as error:
            raise BadInput(f"{what}: {resource}: {error}") from None


def shipped_conf() -> str:
    """The scheduler's configuration in the manifests that a cluster applies."""
    text = (files("pumice") / "manifests" / "volcano.yml").read_text("utf-8")
    return next(str(one["data"][names.SCHEDULER_CONF_KEY]) for one in safe_load_all(text)
                if one.get("kind") == "ConfigMap" and names.SCHEDULER_CONF_KEY in (one.get("data") or {}))  # fmt: skip


def _arriving(
    asked: Inputs, case: ClusterSnapshot, traces: Sequence[tuple[str, str]], manifests: Sequence[Manifest]
) -> list[Submission]:
    """All submissions in the order of their time."""
    tasks = [task for file, text in traces if not lists_nodes(text) for task in tasks_of(text, file)]
    found: list[Submission] = []
    beside = beside_cards(case.objects.get("nodes", ()))
    for number, flow in enumerate(asked.flows):
        prefix = f"pod-{number}" if number else "pod"
        found += generate("--generate", flow, Random(asked.seed + number), tasks, prefix, beside)
    if tasks and not any("shape=trace" in flow for flow in asked.flows):
        found += _of_trace(tasks)
    for one in manifests:
        if not one.stands():
            found += _of_manifest(one, case.scheduler_names)
    _say_unknown_models(tasks, case)
    taken = {key_of(pod) for pod in case.objects.get("pods", ())}
    for submission in found:
        for key in submission.keys():  # noqa: SIM118 (no mapping)
            if key in taken:
                raise BadInput(f"pod {key} is there twice; give one of them another name")
            taken.add(key)
    known = {queue["metadata"]["name"] for queue in case.objects.get("queues", ())} | {names.DEFAULT_QUEUE}
    for queue in sorted({queue_of(template) for one in found for template in one.templates} - known):
        print(f"there is no queue {queue}: it is made, of weight 1{nearest(queue, known)}", file=sys.stderr)
        case.objects.setdefault("queues", []).append(volcano.default_queue(queue, reclaimable=True))
    return sorted(found, key=lambda one: one.at)


def _say_unknown_models(tasks: Iterable[Task], case: ClusterSnapshot) -> None:
    """Name the models of cards that pods of a trace ask for and no node has."""
    there = {(node["metadata"].get("labels") or {}).get(MODEL, "") for node in case.objects.get("nodes", ())} - {""}
    asked = Counter(model for task in tasks for model in task.models if not there.intersection(task.models))
    for model, number in asked.items():
        print(f"no node has cards of model {model}, for which {number:,} pods of the trace ask{nearest(model, there)}",
              file=sys.stderr)  # fmt: skip


def _of_trace(tasks: Sequence[Task]) -> Iterator[Submission]:
    first = min(task.arrives for task in tasks)
    for task in tasks:
        yield Submission(task.arrives - first, task.name, (task.template,), runs=task.runs)


def _of_manifest(one: Manifest, ours: Sequence[str]) -> Iterator[Submission]:
    """The pods of a workload, at the beginning; they stay. Pods of a Volcano Job are a gang of its minAvailable."""
    made, value = templates(one.value), one.value
    if not made:
        if value["kind"] not in IGNORED:
            print(f"{one.where}: {value['kind']} has no pods that could arrive; left out", file=sys.stderr)
        return
    spec = value["spec"]
    tasks = spec.get("tasks") if isinstance(spec.get("tasks"), list) and spec["tasks"] else None
    inner = _mapping(_mapping(spec.get("jobTemplate")).get("spec")) or spec
    gang = 0
    try:
        if tasks is not None:
            counts = [_count(task, "replicas") for task in tasks]
            gang = _count(spec, "minAvailable", sum(counts)) or sum(counts)
            if gang > sum(counts):
                raise ValueError(f"minAvailable {gang} of {sum(counts)} pods")
        else:
            counts = [1 if value["kind"] == "Pod" else _count(inner, "parallelism" if "parallelism" in inner else "replicas")]
        pods = [(str(pod["metadata"]["name"]), _template(pod, ours), many) for pod, many in zip(made, counts, strict=True)]
    except (TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise one.error(f"no pods that the API server would take: {error}") from None
    for own, pod, _ in pods:
        _check_quantities(pod, f"{one.where}: pod {own}")
    called = [pods[0][0]] if value["kind"] == "Pod" else [f"{own}-{number}" for own, _, many in pods for number in range(many)]
    if called:
        name = str(_mapping(value.get("metadata")).get("name") or "pod")
        all_ = [pod for _, pod, many in pods for _ in range(many)]
        yield Submission(0.0, name, all_, gang if len(called) > 1 else 0, names=called)


def _count(owner: Any, key: str, default: int = 1) -> int:
    number = owner.get(key, default)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MOST_PODS:
        raise ValueError(f"{key} {number!r}: a whole number up to {MOST_PODS:,}")
    return number


def _template(pod: Json, ours: Sequence[str]) -> Json:
    named = scheduled_by(convert(Pod, pod), ours)
    meta = {key: value for key, value in pod["metadata"].items() if key in ("namespace", "labels", "annotations") and value}
    return {"metadata": meta, "spec": {**pod["spec"], "schedulerName": named.spec.scheduler_name}, "status": {"phase": "Pending"}}


def _changes(asked: Inputs) -> str:
    """The changes of the cluster in a word."""
    said = [f"{option} {text}" for option, texts in (("add", asked.add), ("recut", asked.recut), ("without", asked.without))
            for text in texts]  # fmt: skip
    return ", ".join(said)


def _changed(case: ClusterSnapshot, asked: Inputs) -> tuple[ClusterSnapshot, set[str]]:
    objects, device_config, gone = case.objects, case.device_config, set()
    for text in asked.add:
        objects, note = added(objects, text)
        if note:
            print(note, file=sys.stderr)
    for text in asked.recut:
        objects, device_config = recut(objects, device_config, text)
    for text in asked.without:
        objects, queue = without(objects, text)
        gone |= {queue} if queue else set()
    return replace(case, objects=objects, device_config=device_config), gone


def _configurations(asked: Inputs, case: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    alike = Counter(path.name for path in asked.confs)
    named = [path.name if alike[path.name] == 1 else str(path) for path in asked.confs]
    confs = [(name, read(path)) for name, path in zip(named, asked.confs, strict=True)] or [("", case.scheduler_conf)]
    for name, text in confs:
        engine_of(replace(case, scheduler_conf=text, objects={}))
        for policy in asked.policies or ("",):
            yield " ".join(filter(None, (name, policy))), with_policy(text, policy) if policy else text
