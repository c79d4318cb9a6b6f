"""Findings in pods and pod templates: wrong units, misspelt keys, requests that do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from pumice.families.amounts import meant_mib, percent_of
from pumice.families.card_policies import POLICIES
from pumice.families.lint.finding import Finding
from pumice.families.lint.objects import asked, unserved
from pumice.families.nvidia_vgpu import NvidiaVgpu
from pumice.families.settings import Settings
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig, nearest
from pumice.wire.objects import Pod, convert
from pumice.wire.quantity import parse_quantity, round_up
from pumice.wire.yaml_lines import Lined

Path = tuple[str | int, ...]

VALUES = {
    names.VGPU_MODE: ("hami-core", "mig"),
    names.PODGROUP_POLICY: ("spread",),
    names.NODE_POLICY: tuple(POLICIES),
    names.CARD_POLICY: tuple(POLICIES),
}
USER_KEYS = (*VALUES, names.USE_GPU_TYPE, names.NOUSE_GPU_TYPE, names.USE_GPU_UUID, names.NOUSE_GPU_UUID)
GROUP_KEYS = (names.GROUP_NAME, names.GROUP_NAME_VOLCANO, names.GROUP_MIN_MEMBER, names.QUEUE_NAME)
OURS = (names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME)


def lint_pods(file: str, lined: Lined, config: DeviceConfig) -> list[Finding]:
    """Every pod and pod template of one document."""
    return [Finding(file, lined.line(*path), text) for path, text in _document(lined, config)]


def _document(lined: Lined, config: DeviceConfig) -> Iterator[tuple[Path, str]]:
    if isinstance(lined.value, dict):
        yield from unserved(lined.value)
    for path, pod, scheduled in _pods(lined.value, ()):
        if not path and "kind" not in pod:
            yield (), "this looks like a Pod, but kubectl takes it only with apiVersion: v1 and kind: Pod"
        yield from _pod(path, pod, scheduled, config)


def _pods(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any], str | None]]:
    """(path, pod-shaped mapping, scheduler name of the surrounding Volcano job)."""
    if not isinstance(value, dict):
        return
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"]):
            yield from _pods(item, (*path, "items", number))
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return
    if value.get("kind") == "Pod" or ("kind" not in value and isinstance(spec.get("containers"), list)):
        yield path, value, None
    job = spec.get("schedulerName") if isinstance(spec.get("tasks"), list) else None
    for number, task in enumerate(spec["tasks"] if isinstance(spec.get("tasks"), list) else ()):
        if isinstance(task, dict) and isinstance(task.get("template"), dict):
            yield (*path, "spec", "tasks", number, "template"), task["template"], job or "volcano"
    if isinstance(spec.get("template"), dict):
        yield (*path, "spec", "template"), spec["template"], None
    inner = spec.get("jobTemplate")
    if isinstance(inner, dict):
        yield from _pods({"kind": "Job", **inner}, (*path, "spec", "jobTemplate"))


def _pod(path: Path, pod: dict[str, Any], scheduled: str | None, config: DeviceConfig) -> Iterator[tuple[Path, str]]:
    yield from (((*path, *below), text) for below, text in asked(pod, "Pod"))
    yield from _annotations((*path, "metadata", "annotations"), (pod.get("metadata") or {}).get("annotations"))
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    asks = False
    for key in ("initContainers", "containers"):
        listed = spec.get(key)
        for number, container in enumerate(listed if isinstance(listed, list) else ()):
            resources = container.get("resources") if isinstance(container, dict) else None
            if isinstance(resources, dict):
                here = (*path, "spec", key, number, "resources")
                found = list(_container(here, resources, config))
                asks = asks or _wants(resources, config)
                yield from found
    if asks and (spec.get("schedulerName") or scheduled) in (None, "default-scheduler"):
        yield (*path, "spec"), "the pod asks for shares of cards, but its schedulerName is not volcano: nobody chooses its cards"
    yield from _as_a_whole((*path, "spec"), pod, config)


def _wants(resources: dict[str, Any], config: DeviceConfig) -> bool:
    limits = resources.get("limits")
    ours = (config.nvidia.resource_count_name, config.nvidia.resource_memory_name, names.GPU_MEMORY, names.GPU_NUMBER)
    return isinstance(limits, dict) and any(name in limits for name in ours)


def _annotations(path: Path, notes: Any) -> Iterator[tuple[Path, str]]:
    for key, value in notes.items() if isinstance(notes, dict) else ():
        here = (*path, key)
        if key in VALUES and value not in VALUES[key]:
            allowed = " or ".join(VALUES[key])
            yield here, f"{key}: {value!r} {'matches no card' if key == names.VGPU_MODE else 'does nothing'}; write {allowed}"
        elif key in OURS:
            yield here, f"{key} is written by the scheduler; a manifest must not carry it"
        elif key not in USER_KEYS and not isinstance(value, dict | list):
            cutoff = 0.8 if str(key).split("/")[0] in (names.DOMAIN, names.NVIDIA_DOMAIN, names.OUR_DOMAIN, "nvidia.sh") else 0.9
            for close in difflib.get_close_matches(str(key), (*USER_KEYS, *GROUP_KEYS), n=1, cutoff=cutoff):
                if close != key:
                    yield here, f"nobody reads the annotation {key}; did you mean {close!r}?"
        if key == names.NOUSE_GPU_TYPE and names.USE_GPU_TYPE in notes:
            yield here, f"{key} is not looked at, because {names.USE_GPU_TYPE} is there"
        if key in (names.USE_GPU_UUID, names.NOUSE_GPU_UUID) and value and "GPU-" not in str(value):
            yield here, f"{key}: {value!r} names no card; UUIDs begin with GPU-"


def _container(path: Path, resources: dict[str, Any], config: DeviceConfig) -> Iterator[tuple[Path, str]]:
    c = config.nvidia
    known = (c.resource_count_name, c.resource_memory_name, c.resource_core_name, c.resource_memory_percentage_name,
             names.GPU_MEMORY, names.GPU_NUMBER)  # fmt: skip
    for section in ("limits", "requests"):
        values = resources.get(section)
        for key, value in values.items() if isinstance(values, dict) else ():
            here = (*path, section, key)
            if key not in known:
                near = nearest(key, known)
                if key in names.SAME_ELSEWHERE and key != names.WHOLE_GPU:  # that one is NVIDIA's own plugin's too
                    yield here, f"{key} is HAMi's name; here it is {names.SAME_ELSEWHERE[key]}"
                elif ((near and "/" in key) or "gpu" in key.lower()) and not key.startswith(f"{names.NVIDIA_DOMAIN}/"):
                    yield here, f"nobody offers the resource {key}{near}"
                continue
            yield from ((here, text) for text in _value(key, value, config))
            if section == "requests" and key not in (resources.get("limits") or {}):
                yield here, f"{key} in requests alone does nothing; write it under limits"
    limits = resources.get("limits")
    if isinstance(limits, dict):
        yield from _together((*path, "limits"), limits, config)


def _value(key: str, value: Any, config: DeviceConfig) -> Iterator[str]:
    c = config.nvidia
    memory = key in (c.resource_memory_name, names.GPU_MEMORY)
    mib, unit = meant_mib(value) if memory else (0, "")
    try:
        amount = parse_quantity(value)
    except (ValueError, TypeError):
        what = "nothing" if value in (None, "") else repr(value)
        yield f"{key}: {what} is not a quantity{_meant(key, value, mib, config)}"
        return
    if amount.denominator != 1 and key in (names.GPU_MEMORY, names.GPU_NUMBER):
        yield f"{key}: {value} is not a whole number and counts as {round_up(value)}"
        return
    if amount.denominator != 1:
        yield f"{key}: {value} is not a whole number and counts as 0{_part(key, float(amount), config)}"
        return
    number = int(amount)
    if mib:
        written = f"{value} {unit}" if str(value).isdecimal() else value
        yield f"{key}: {value} is {number} MiB, more than any card has; for {written} of memory write {mib}"
    elif memory and 0 < number < 64:
        yield f"{key}: {value} is {number} MiB; for {number} GiB write {number * 1024}"
    elif key == c.resource_core_name and number > 100:
        several = f"for several cards write {c.resource_count_name}"
        yield f"{key}: {value} is in per cent of one card; above 100 it fits nowhere; {several}"
    elif key == c.resource_memory_percentage_name and number > 100:
        meaning = "is read as not given" if number == 101 else "fits nowhere"
        yield f"{key}: {value} is in per cent of one card; {number} {meaning}"
    elif key == c.resource_count_name and number == 0:
        yield f"{key}: 0 asks for no card"
    elif number < 0:
        yield f"{key}: {value} is negative"


def _meant(key: str, value: Any, mib: int, config: DeviceConfig) -> str:
    """The nearest right thing for what is no number at all."""
    c = config.nvidia
    if mib:
        return f"; this counts MiB, without a unit: write {mib}"
    if percent := percent_of(value):
        name = c.resource_memory_percentage_name if key == c.resource_memory_name else key
        return f"; write {name}: {percent}" if name else ""
    return "; write a whole number" + (" of MiB, for example 3000" if key in (c.resource_memory_name, names.GPU_MEMORY) else "")


def _part(key: str, value: float, config: DeviceConfig) -> str:
    """What to write for a part of a unit."""
    c = config.nvidia
    if key == c.resource_count_name and 0 < value < 1:
        share = c.resource_memory_percentage_name
        memory = f"{share}: {100 * value:.0f}" if share else f"some {c.resource_memory_name}"
        return f"; for a part of a card write {key}: 1 with {memory} and {c.resource_core_name}: {100 * value:.0f}"
    if key in (c.resource_core_name, c.resource_memory_percentage_name):
        return f"; it is in per cent: write {100 * value if value < 1 else value:.0f}"
    if key == c.resource_memory_name:
        mib = f"; it is in MiB: for {value:g} GiB write {1024 * value:.0f}" if value < 512 else ""
        return f", which is a whole card{mib}"
    return ""


def _together(path: Path, limits: dict[str, Any], config: DeviceConfig) -> Iterator[tuple[Path, str]]:
    c = config.nvidia
    count, memory = c.resource_count_name in limits, c.resource_memory_name in limits
    for name in (c.resource_core_name, c.resource_memory_percentage_name):
        if name in limits and not count and not memory:
            yield (*path, name), f"{name} alone asks for no card; add {c.resource_count_name}: 1"
    if memory and c.resource_memory_percentage_name in limits:
        yield (*path, c.resource_memory_name), f"the percentage wins; {c.resource_memory_name} is not looked at"
    if (count or memory) and (names.GPU_MEMORY in limits or names.GPU_NUMBER in limits):
        yield path, "vgpu-… and the older gpu-… resources exclude each other on one scheduler"
    if (count or memory) and names.WHOLE_GPU in limits:
        yield path, "nvidia.com/gpu belongs to another plugin and gives a whole card beside the share"


def _as_a_whole(path: Path, pod: dict[str, Any], config: DeviceConfig) -> Iterator[tuple[Path, str]]:
    """What only the scheduler's own reading of the pod tells."""
    try:
        spec = {key: value for key, value in pod["spec"].items() if key in ("containers", "initContainers")}
        ask = NvidiaVgpu(config, Settings(vgpu=True)).ask(convert(Pod, {"metadata": {}, "spec": spec}))
    except msgspec.ValidationError as error:
        yield path, f"no pod that the API server would take: {error}"
        return
    if isinstance(ask, Refusal) and "init container" in ask.field and "asks for" in ask.text:
        yield path, f"{ask.field} {ask.text}"
