"""Recorded choices of Volcano, asked of our engine step by step; after each answer the recorded one is what happened.

The recording (its README tells the format) is taken by path: ``PUMICE_VOLCANO_CHOICES``, or the shared folder beside the
repository. What tests need always is ``tests/golden/volcano_choices.yaml``, in the same format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from kit.objects import group, node, pod, queue

from pumice.effects.vocabulary import Bind
from pumice.model.errors import BadInput
from pumice.scheduler.engine import Engine
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import PodGroup, Queue
from pumice_jobs.controllers.podgroup import min_resources

Json = dict[str, Any]
RECORDING = Path(os.environ.get("PUMICE_VOLCANO_CHOICES", Path(__file__).parents[3] / "shared/data/volcano-choices/choices.json"))
OWN = Path(__file__).parent / "volcano_choices.yaml"
PERCENTAGE = names.VGPU_MEMORY_PERCENTAGE


def recording(path: Path) -> Json:
    text = path.read_text("utf-8")
    found: Json = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """One step where ours is not the recorded answer. ``kind``: ``node`` (another one scores higher with us), ``cards`` (of the
    same node), ``refused`` (ours waits), ``taken`` (theirs waited), ``tie`` (several are as good with us where theirs was one in
    all runs) or ``configuration`` (ours is not read)."""

    configuration: str
    cluster: str
    run: int
    step: int
    pod: str
    kind: str
    theirs: str
    ours: str


@dataclass(slots=True)
class Asked:
    """Our answer: where the pod goes, and every node that is as good to us."""

    where: str
    cards: list[list[list[Any]]] | None
    equals: frozenset[str]


class Replay:
    """One cluster under one configuration."""

    def __init__(self, data: Json, configuration: str, cluster: str) -> None:
        conf = parse_scheduler_conf(data["configurations"][configuration])
        config = parse_device_config(data["device_config"]) if configuration.endswith("+percentage") else None
        self.engine = Engine(conf, config)
        self.state, self.now, self.serial = self.engine.state, 1000.0, 0
        self.shapes: dict[str, Json] = {}
        self.there: dict[str, Pod] = {}
        self.state.groups.put_queue(convert(Queue, queue("default")))
        for shape in data["clusters"][cluster]["nodes"]:
            self.state.bookings.put_node(convert(Node, node_object(shape)))
        for step in data["clusters"][cluster]["bound"]:
            self.shapes[step["pod"]] = step
            cards = [[[f"GPU-{where}-{index}", mib, cores] for where, index, mib, cores in step.get("ids", ())]]
            self.settle(step["pod"], {"node": step["bound"], **({"cards": cards} if step.get("ids") else {})})

    def ask(self, step: Json, *, only: str = "") -> Asked:
        """Return our decision on the pod of this step; it stays pending."""
        shape = self.shapes[step["pod"]] | ({"pin": only} if only else {})
        mine = self.put(step["pod"], pod_object(shape))
        bind: Bind | None = None
        for _ in range(3):
            self.now += 1
            effects = self.engine.cycle(self.now).effects
            bind = next((e for e in effects if isinstance(e, Bind) and e.uid == mine.metadata.uid), None)
            if bind is not None:
                break
        if bind is None:
            return Asked("", None, frozenset())
        cls = self.state.tasks[mine.metadata.uid].cls
        self.drop(step["pod"])
        return Asked(bind.node, written_cards(bind.annotations), self.best(cls))

    def best(self, cls: Any) -> frozenset[str]:
        """The nodes of the highest score."""
        scores = self.engine.placer.evaluation.scores(cls, None)
        relative = self.engine.framework.relative(self.state, cls, scores > -np.inf)
        scores = scores if relative is None else scores + relative
        return frozenset(self.state.ledger.table.name(int(row)) for row in np.flatnonzero(scores >= scores.max() - 1e-6))

    def settle(self, name: str, answer: Json) -> None:
        """The recorded answer is what happened."""
        if "node" not in answer:
            return
        obj = pod_object(self.shapes[name])
        obj["spec"]["nodeName"] = answer["node"]
        obj["metadata"]["annotations"] |= taken_annotations(answer)
        self.put(name, obj)

    def put(self, name: str, obj: Json) -> Pod:
        self.drop(name)
        self.serial += 1
        obj["metadata"]["uid"] = f"{name}-{self.serial}"
        found = convert(Pod, obj)
        about = group(name, minimum=1, resources=min_resources(found, 1))
        about["metadata"]["uid"] = f"group-{name}-{self.serial}"
        if found.spec.node_name:
            about["status"]["phase"] = "Running"
        self.state.groups.put_group(convert(PodGroup, about))
        self.state.pods.put(found, self.now)
        self.there[name] = found
        return found

    def drop(self, name: str) -> None:
        gone = self.there.pop(name, None)
        if gone is not None:
            self.state.pods.drop(gone)
            self.state.groups.drop_group(convert(PodGroup, group(name, minimum=1)))


def differences(data: Json, entry: Json) -> Iterator[Difference]:
    """Every step of every run of a set at which ours is another answer, each asked with the recorded ones as what happened."""
    script = data["clusters"][entry["cluster"]]["script"]
    try:
        parse_scheduler_conf(data["configurations"][entry["configuration"]])
    except BadInput as error:
        yield Difference(entry["configuration"], entry["cluster"], 0, 0, "", "configuration", "is read", str(error))
        return
    rests = entry.get("rest") or [[]]
    for run, rest in enumerate(rests):
        replay = Replay(data, entry["configuration"], entry["cluster"])
        for number, (step, answer) in enumerate(zip(script, [*entry["answers"], *rest], strict=True)):
            if step["op"] == "delete":
                for name in step["pods"]:
                    replay.drop(name)
                continue
            replay.shapes.setdefault(step["pod"], step)
            if step["op"] == "look" and replay.there[step["pod"]].spec.node_name:
                continue  # it had its place already
            if run == 0 or number >= len(entry["answers"]):
                found = compare(replay, step, answer, ties=not entry.get("deterministic", True))
                if found is not None:
                    yield Difference(entry["configuration"], entry["cluster"], run, number, step["pod"], *found)
            replay.settle(step["pod"], answer)
            if "pending" in answer:
                replay.drop(step["pod"])
                if step.get("keep"):
                    replay.put(step["pod"], pod_object(step))


@dataclass(frozen=True, slots=True)
class Played:
    """A script of which every pod was placed by us, as `pumice simulate` plays it: of so many pods that were asked about, how
    many have a place with us, and with Volcano in each run. ``differs``: the kinds of differences where the recorded answers are
    what happened."""

    configuration: str
    asked: int
    ours: int
    theirs: tuple[int, ...]
    differs: frozenset[str]

    @property
    def error(self) -> float:
        """Points of the pods that are placed, above the mean of Volcano's runs."""
        return 100 * (self.ours - sum(self.theirs) / len(self.theirs)) / self.asked

    @property
    def spread(self) -> float:
        """Points by which a run of Volcano's differs from their mean."""
        mean = sum(self.theirs) / len(self.theirs)
        return 100 * sum(abs(count - mean) for count in self.theirs) / len(self.theirs) / self.asked


def played(data: Json, entry: Json) -> Played:
    """Play a set from its beginning with our own answers as what happened."""
    script, replay, ours = data["clusters"][entry["cluster"]]["script"], Replay(data, entry["configuration"], entry["cluster"]), 0
    asks = [number for number, answer in enumerate(entry["answers"] + (entry.get("rest") or [[]])[0]) if answer is not None]
    for number, step in enumerate(script):
        if step["op"] == "delete":
            for name in step["pods"]:
                replay.drop(name)
            continue
        name = step["pod"]
        replay.shapes.setdefault(name, step)
        there = replay.there.get(name)
        if step["op"] == "look" and (there is None or there.spec.node_name):
            ours += there is not None and number in asks
            continue
        mine = replay.ask(step)
        ours += bool(mine.where) and number in asks
        if mine.where:
            replay.settle(name, {"node": mine.where, **({"cards": mine.cards} if mine.cards is not None else {})})
            continue
        replay.drop(name)
        if step.get("keep"):
            replay.put(name, pod_object(step))
    runs = [entry["answers"] + rest for rest in entry.get("rest") or [[]]]
    theirs = tuple(sum(answer is not None and "node" in answer for answer in run) for run in runs)
    return Played(entry["configuration"], len(asks), ours, theirs, frozenset(found.kind for found in differences(data, entry)))


def compare(replay: Replay, step: Json, answer: Json, *, ties: bool) -> tuple[str, str, str] | None:
    """None, or (kind, theirs, ours)."""
    mine = replay.ask(step)
    if "pending" in answer or not mine.where:
        if "pending" in answer and not mine.where:
            return None
        return ("taken", "waits", reported(mine)) if "pending" in answer else ("refused", answer["node"], "waits")
    theirs = Asked(answer["node"], answer.get("cards"), frozenset())
    kind = "node" if theirs.where not in mine.equals else "tie" if len(mine.equals) > 1 and not ties else ""
    here = mine if mine.where == theirs.where else replay.ask(step, only=theirs.where)
    if not here.where:
        return "refused", reported(theirs), reported(mine)
    if theirs.cards != here.cards:
        kind = "cards"
    return (kind, reported(theirs), reported(mine)) if kind else None


def reported(answer: Asked) -> str:
    return f"{answer.where} {answer.cards}" if answer.cards else answer.where


def node_object(shape: Json) -> Json:
    cards, legacy = shape["cards"], shape.get("legacy")
    extra = {PERCENTAGE: str(shape["percentage"])} if shape.get("percentage") else {}
    if legacy:
        extra = {"volcano.sh/gpu-memory": str(cards * shape["card_memory"]), "volcano.sh/gpu-number": str(cards)}
    return node(shape["name"], cards=0 if legacy else cards, mib=shape["card_memory"], shares=shape["shares"], kind="NVIDIA-Test",
                cpu=shape["cpu"], memory=shape["memory"], pods=shape["pods"], extra=extra)  # fmt: skip


def pod_object(shape: Json) -> Json:
    resources = {
        "volcano.sh/vgpu-number": shape.get("number"), "volcano.sh/vgpu-memory": shape.get("vmem"),
        "volcano.sh/vgpu-cores": shape.get("cores"), PERCENTAGE: shape.get("percent"),
        "volcano.sh/gpu-memory": shape.get("gpu_memory"), "volcano.sh/gpu-number": shape.get("gpu_number"),
    }  # fmt: skip
    limits = {key: str(value) for key, value in resources.items() if value is not None}
    where = {"nodeSelector": {"kubernetes.io/hostname": shape["pin"]}} if shape.get("pin") else {}
    made = pod(shape["pod"], cpu=shape["cpu"], memory=shape["memory"], limits=limits, group=shape["pod"],
               scheduler=shape.get("scheduler", "volcano"), **where)  # fmt: skip
    first = made["spec"]["containers"][0]
    made["spec"]["containers"] = [{**first, "name": f"c{n}"} for n in range(shape.get("containers", 1))]
    return made


def taken_annotations(answer: Json) -> dict[str, str]:
    if "gpu-index" in answer:
        return {"volcano.sh/gpu-index": answer["gpu-index"], "volcano.sh/predicate-time": "1"}
    if "cards" not in answer:
        return {}
    ids = (
        ";".join(
            "".join(f"{uuid},NVIDIA,{mib},{cores}:" for uuid, mib, cores in allocated) for allocated in answer["cards"]
        )
        + ";"
    )
    return {"volcano.sh/vgpu-ids-new": ids, "volcano.sh/devices-to-allocate": ids, "volcano.sh/vgpu-node": answer["node"],
            "volcano.sh/bind-phase": "success"}  # fmt: skip


def written_cards(annotations: dict[str, str]) -> list[list[list[Any]]] | None:
    text = annotations.get("volcano.sh/vgpu-ids-new")
    if text is None:
        return None
    found = []
    for container in text.split(";")[: -1 if text.endswith(";") else None]:
        container_devices = [container_device.split(",") for container_device in container.split(":") if container_device]
        found.append([[uuid, int(mib), int(cores)] for uuid, _, mib, cores in container_devices])
    return found
