"""The inputs of ``pumice simulate``: a cluster, who arrives, and the variants that are compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from random import Random

import msgspec

from pumice.cli.casefile import Case, engine_of
from pumice.cli.fits import documents_of, scheduled_by, templates
from pumice.cli.picture import Source, picture
from pumice.cli.streams import read
from pumice.model.errors import BadInput
from pumice.simulation.changes import added, outages, queue_of, recut, with_policy, without
from pumice.simulation.generate import generate
from pumice.simulation.manifests import Json
from pumice.simulation.play import Outage, Submission
from pumice.simulation.trace import Task, lists_nodes, nodes_of, tasks_of
from pumice.wire import names, volcano
from pumice.wire.document import safe_load_all
from pumice.wire.objects import Pod, convert

BEGIN = 1_000_000_000.0
"""The time of day at which a play begins that has no dump."""
KINDS = {"Node": "nodes", "Queue": "queues", "PodGroup": "podGroups", "PriorityClass": "priorityClasses",
         "ResourceQuota": "resourceQuotas", "HyperNode": "hyperNodes", "PodDisruptionBudget": "disruptionBudgets"}  # fmt: skip
"""Kinds of manifests that are part of the cluster; what has a pod template arrives."""


@dataclass(frozen=True, slots=True)
class Asked:
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
    case: Case
    submissions: Sequence[Submission]
    outages: Sequence[Outage] = field(default_factory=tuple)


def variants_of(asked: Asked) -> list[Variant]:
    """Read what was asked for. Raises BadInput where something of it cannot be."""
    case = _cluster(asked)
    arriving = _arriving(asked, case)
    changes = _changes(asked)
    found: list[tuple[str, Case, set[str]]] = [("", case, set())]
    if changes:
        changed, gone = _changed(case, asked)
        found = [*found, (changes, changed, gone)] if case.objects.get("nodes") else [("", changed, gone)]
    if not found[0][1].objects.get("nodes"):
        raise BadInput("no nodes: give a cluster with --from, --kubeconfig, --trace, -f, or make one with --add")
    pods = sum(len(one.templates) for one in arriving) + sum(not p["spec"].get("nodeName") for p in case.objects.get("pods", ()))
    if not pods:
        raise BadInput("nobody arrives: give pods with --trace or -f, or --generate some; in a dump, none waits")
    last = arriving[-1].at if arriving else 0.0
    return [
        Variant(" + ".join(filter(None, (what, change))) or "as configured", replace(variant, scheduler_conf=conf),
                [one for one in arriving if queue_of(one.templates[0]) not in gone],
                [outage for text in asked.fail for outage in outages(variant.objects, text, last, Random(asked.seed))])
        for change, variant, gone in found for what, conf in _configurations(asked, variant)
    ]  # fmt: skip


def _cluster(asked: Asked) -> Case:
    if asked.dump is not None or asked.kubeconfig is not None:
        case = picture(Source(file=asked.dump, kubeconfig=asked.kubeconfig))
    else:
        case = Case(now=BEGIN, scheduler_conf=shipped_conf())
    objects = {kind: list(found) for kind, found in case.objects.items()}
    for path in asked.traces:
        text = read(path)
        if lists_nodes(text):
            objects.setdefault("nodes", []).extend(nodes_of(text, str(path)))
    for path in asked.manifests:
        for document in documents_of(path, read(path)):
            value = document.value
            kind = KINDS.get(value.get("kind", "")) if isinstance(value, dict) else None
            if kind is not None:
                if not isinstance(value.get("metadata"), dict) or not value["metadata"].get("name"):
                    raise BadInput(f"{path}:{document.line()}: it has no metadata.name")
                objects.setdefault(kind, []).append(value)
    case = replace(case, objects=objects, now=case.now or BEGIN)
    engine_of(case)  # what cannot be read is told before anything is played
    return case


def shipped_conf() -> str:
    """The scheduler's configuration in the manifests that a cluster applies."""
    text = (files("pumice") / "manifests" / "volcano.yml").read_text("utf-8")
    return next(str(one["data"][names.SCHEDULER_CONF_KEY]) for one in safe_load_all(text)
                if one.get("kind") == "ConfigMap" and names.SCHEDULER_CONF_KEY in (one.get("data") or {}))  # fmt: skip


def _arriving(asked: Asked, case: Case) -> list[Submission]:
    """All submissions in the order of their time."""
    tasks = [task for path in asked.traces if not lists_nodes(text := read(path)) for task in tasks_of(text, str(path))]
    found: list[Submission] = []
    for number, flow in enumerate(asked.flows):
        found += generate("--generate", flow, Random(asked.seed + number), tasks, f"pod-{number}" if number else "pod")
    if tasks and not any("shape=trace" in flow for flow in asked.flows):
        found += _of_trace(tasks)
    for path in asked.manifests:
        found += _of_manifest(path, case.scheduler_names)
    known = {queue["metadata"]["name"] for queue in case.objects.get("queues", ())} | {names.DEFAULT_QUEUE}
    for queue in sorted({queue_of(template) for one in found for template in one.templates} - known):
        print(f"there is no queue {queue}: it is made, of weight 1", file=sys.stderr)
        case.objects.setdefault("queues", []).append(volcano.default_queue(queue, reclaimable=True))
    return sorted(found, key=lambda one: one.at)


def _of_trace(tasks: Sequence[Task]) -> Iterator[Submission]:
    first = min(task.arrives for task in tasks)
    for task in tasks:
        yield Submission(task.arrives - first, task.name, (task.template,), runs=task.runs)


def _of_manifest(path: Path, ours: Sequence[str]) -> Iterator[Submission]:
    """The pods of workloads, all at the beginning; they stay. Pods of a Volcano Job are a gang of its minAvailable."""
    for document in documents_of(path, read(path)):
        value = document.value
        made = templates(value)
        if not made:
            if isinstance(value, dict) and value.get("kind") not in KINDS and value.get("kind") is not None:
                print(f"{path}:{document.line()}: {value['kind']} is no part of a simulation; left out", file=sys.stderr)
            continue
        spec = value["spec"]
        tasks = spec.get("tasks")
        try:
            counts = [int(task.get("replicas", 1)) for task in tasks] if isinstance(tasks, list) and tasks else \
                [int(spec.get("replicas", spec.get("parallelism", 1))) if value.get("kind") != "Pod" else 1]
            gang = int(spec.get("minAvailable") or sum(counts)) if isinstance(tasks, list) and tasks else 0
            pods = [_template(pod, ours) for pod, many in zip(made, counts, strict=True) for _ in range(many)]
        except (TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
            raise BadInput(f"{path}:{document.line()}: no pods that the API server would take: {error}") from None
        name = str((value.get("metadata") or {}).get("name") or "pod")
        yield Submission(0.0, name, pods, gang if len(pods) > 1 else 0)


def _template(pod: Json, ours: Sequence[str]) -> Json:
    named = scheduled_by(convert(Pod, pod), ours)
    meta = {key: value for key, value in pod["metadata"].items() if key in ("namespace", "labels", "annotations")}
    return {"metadata": meta, "spec": {**pod["spec"], "schedulerName": named.spec.scheduler_name}, "status": {"phase": "Pending"}}


def _changes(asked: Asked) -> str:
    """The changes of the cluster in a word."""
    said = [f"{option} {text}" for option, texts in (("add", asked.add), ("recut", asked.recut), ("without", asked.without))
            for text in texts]  # fmt: skip
    return ", ".join(said)


def _changed(case: Case, asked: Asked) -> tuple[Case, set[str]]:
    objects, device_config, gone = case.objects, case.device_config, set()
    for text in asked.add:
        objects = added(objects, text)
    for text in asked.recut:
        objects, device_config = recut(objects, device_config, text)
    for text in asked.without:
        objects, queue = without(objects, text)
        gone |= {queue} if queue else set()
    return replace(case, objects=objects, device_config=device_config), gone


def _configurations(asked: Asked, case: Case) -> Iterator[tuple[str, str]]:
    confs = [(path.name, read(path)) for path in asked.confs] or [("", case.scheduler_conf)]
    for name, text in confs:
        engine_of(replace(case, scheduler_conf=text, objects={}))
        for policy in asked.policies or ("",):
            yield " ".join(filter(None, (name, policy))), with_policy(text, policy) if policy else text
