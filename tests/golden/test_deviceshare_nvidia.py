"""Every worked example of ``deviceshare_nvidia.yaml``, played through the device type's public methods and a tiny ledger."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.device_world import V100, TinyLedger, card, pod_of, vgpu_node
from kit.objects import render_geometries

from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare
from pumice.devices.nvidia_vgpu.mig_catalogue import PUBLISHED
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, DeviceSharing, Fit
from pumice.devices.registry import settings_from
from pumice.devices.settings import LAST_RESORT, Settings
from pumice.model.cards import Allocation
from pumice.model.refusal import FitError, Refusal
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import Node, Pod, convert

CASES = yaml.safe_load((Path(__file__).parent / "deviceshare_nvidia.yaml").read_text("utf-8"))["cases"]
RESOURCES = {"n": names.VGPU_NUMBER, "m": names.VGPU_MEMORY, "p": names.VGPU_MEMORY_PERCENTAGE, "c": names.VGPU_CORES}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_example(case: dict[str, Any]) -> None:
    story = Story(case)
    for number, step in enumerate(case["steps"]):
        if case.get("alone"):
            story = Story(case)
        story.play(number, step)


class Story:
    """One case: a node, its books and the pods so far."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.settings = settings(case)
        self.ledger = TinyLedger(device_type(case, self.settings))
        self.ledger.add_node(node(case))
        self.last: tuple[Pod, Allocation] | None = None
        self.count = 0

    def play(self, number: int, step: dict[str, Any]) -> None:
        right = step.get("right", {})
        outcome: Any = None
        if "leave" in step or "undo" in step:
            assert self.last is not None
            self.ledger.leave(self.last[0])
        elif "restore" in step:
            assert self.last is not None
            self.ledger.allocated[self.last[0].metadata.uid] = self.last
        else:
            pod = self.pod(step)
            outcome = self.ledger.replay(pod, "n1") if "replay" in step else self.ledger.place(pod, "n1")
            if pod.metadata.uid in self.ledger.allocated:
                self.last = (pod, self.ledger.allocated[pod.metadata.uid][1])
        self.check(f"step {number}", right, outcome)

    def pod(self, step: dict[str, Any]) -> Pod:
        self.count += 1
        notes = dict(step.get("annotations", {}))
        if "group" in step:
            notes[names.GROUP_NAME] = step["group"]
        if step.get("spread"):
            notes[names.PODGROUP_POLICY] = "spread"
        legacy = "legacy" in self.case
        if "replay" in step:
            notes |= {names.GPU_INDEX if legacy else names.VGPU_IDS: step["replay"]}
        containers = [container(text, legacy) for text in step.get("pod", ["-"])]
        return pod_of(f"p{self.count}", *containers, annotations=notes, node="n1" if "replay" in step else "")

    def check(self, where: str, right: dict[str, Any], outcome: Any) -> None:
        for key, wanted in right.items():
            match key:
                case "ids":
                    assert isinstance(outcome, Fit), f"{where}: {outcome}"
                    assert self.last is not None
                    assert self.ledger.ids(self.last[0]) == wanted, where
                case "fits":
                    assert isinstance(outcome, Fit) == wanted, f"{where}: {outcome}"
                case "reason":
                    assert isinstance(outcome, FitError)
                    assert wanted in outcome.text, where
                case "card_reason":
                    assert isinstance(outcome, FitError)
                    assert any(wanted in fit_error.detail for fit_error in outcome.cards), where
                case "final":
                    assert isinstance(outcome, FitError)
                    assert outcome.final == wanted, where
                case "refused":
                    assert isinstance(outcome, Refusal), f"{where}: {outcome}"
                    assert wanted in outcome.text, where
                case "no_request":
                    assert outcome is None, where
                case "raw":
                    assert isinstance(outcome, Fit), f"{where}: {outcome}"
                    devices = len(outcome.allocation.container_devices)
                    score = outcome.score + LAST_RESORT if outcome.score < 0 else outcome.score
                    assert math.isclose(score * devices, wanted, abs_tol=0.002 * devices), where
                case "node_score":
                    assert isinstance(outcome, Fit)
                    assert self.settings.contribution(outcome.score) == wanted, where
                case "used":
                    cards = {c.uuid: c.index for c in self.ledger.inventories["n1"].cards}
                    used = self.ledger.used("n1")
                    assert {uuid: "/".join(map(str, used[cards[uuid]])) for uuid in wanted} == wanted, where
                case "quarantined":
                    cards = {c.uuid: c.index for c in self.ledger.inventories["n1"].cards}
                    for uuid, reason in wanted.items():
                        assert reason in self.ledger.doubts["n1"][cards[uuid]], where
                case "cards":
                    assert [c.index for c in self.ledger.inventories["n1"].cards] == list(range(wanted)), where
                case _:
                    raise AssertionError(f"unknown expectation {key}")


def settings(case: dict[str, Any]) -> Settings:
    """With upstream's choice of slots, which the examples are written for."""
    arguments: dict[str, Any] = {"deviceshare.VGPUEnable": True, "pumice.MigPolicy": "listed", **case.get("arguments", {})}
    if case.get("policy", "unset") != "unset":
        arguments["deviceshare.SchedulePolicy"] = case["policy"]
    if "weight" in case:
        arguments["deviceshare.ScheduleWeight"] = case["weight"]
    found = settings_from(arguments)
    assert isinstance(found, Settings)
    return found


def device_type(case: dict[str, Any], chosen: Settings) -> DeviceSharing:
    if "legacy" in case:
        return NvidiaGpushare()
    document: dict[str, Any] = dict(case.get("config", {}))
    if case.get("geometries") == "published":
        document["nvidia"] = {**document.get("nvidia", {}), "knownMigGeometries": render_geometries(PUBLISHED)}
    return NvidiaVgpu(parse_device_config(yaml.safe_dump(document)), chosen)


def node(case: dict[str, Any]) -> Node:
    if legacy := case.get("legacy"):
        capacity = {names.GPU_MEMORY: legacy["gpu-memory"], names.GPU_NUMBER: legacy["gpu-number"]}
        notes = {names.NODE_GPU_UNHEALTHY_IDS: legacy.get("unhealthy", "")}
        return convert(Node, {"metadata": {"name": "n1", "annotations": notes}, "status": {"capacity": capacity}})
    if "register" in case:
        return vgpu_node("n1", case["register"])
    kind, mode = case.get("type", V100), case.get("mode", "hami-core")
    cards = []
    for text in case.get("cards", ["GPU-aaa 16384/10", "GPU-bbb 16384/10"]):
        uuid, _, size = text.partition(" ")
        memory, _, shares = size.partition("/")
        cards.append(card(uuid, int(memory), int(shares), kind, healthy=case.get("health") != "false", mode=mode))
    return vgpu_node("n1", *cards, allocatable=case.get("allocatable"))


def container(text: str, legacy: bool) -> dict[str, Any]:
    if text == "-":
        return {}
    parts = dict(item.split("=") for item in text.split())
    if legacy:
        return {names.GPU_MEMORY: parts["m"]}
    return {RESOURCES[key]: value for key, value in parts.items()}


def test_the_examples_name_every_number_of_the_specification() -> None:
    present = {case["id"] for case in CASES}
    wanted = [*range(1, 20), *range(20, 30), 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 42, 43, 44, 45, 46, 47, 48, 49]
    letters = ["E-30b", "E-30c", "E-30d", "E-36b", "E-40b", "E-40c", *(f"E-41{x}" for x in "abcdef")]
    letters += [*(f"E-50{x}" for x in "abcdefg"), "E-51", *(f"E-52{x}" for x in "abc"), "E-60", "E-61", "E-62"]
    assert {*(f"E-{number:02}" for number in wanted), *letters} <= present


def test_an_answer_that_only_filters_is_the_one_that_allocates() -> None:
    """On every example the filter's choice on unchanged books is the allocation's."""
    for case in CASES:
        story = Story(case)
        for step in case["steps"]:
            if "pod" in step and "replay" not in step:
                pod = story.pod(step)
                story.count -= 1
                device_request = story.ledger.device_type.device_request(pod)
                if isinstance(device_request, DeviceRequest) and "n1" in story.ledger.inventories:
                    assert story.ledger.try_pod(pod, "n1") == story.ledger.try_pod(pod, "n1")
            story.play(0, {**step, "right": {}})
