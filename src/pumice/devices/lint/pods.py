"""Findings in pods and pod templates: wrong units, misspelt keys, requests that do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pumice.devices.card_policies import ANNOTATIONS, misnamed_in
from pumice.devices.lint.finding import Finding
from pumice.devices.protocol import DeviceSharing, Tunables
from pumice.model.errors import nearest
from pumice.model.refusal import Refusal
from pumice.wire import hami_names, names
from pumice.wire.document import Document
from pumice.wire.objects import Pod, convert
from pumice.wire.quantity import meant_mib, parse_quantity, percent_of, round_up
from pumice.wire.volcano import Queue
from pumice.wire.without_effect import Row, What, asked_by_pod, asked_by_queue, rows

Path = tuple[str | int, ...]


GROUP_KEYS = (names.GROUP_NAME, names.GROUP_NAME_VOLCANO, names.GROUP_MIN_MEMBER, names.QUEUE_NAME)
DeviceSharings = Sequence[DeviceSharing]


def lint_pods(file: str, lined: Document, device_types: DeviceSharings) -> list[Finding]:
    """Every pod and pod template of one document."""
    return [Finding(file, lined.line(*path), text) for path, text in _document(lined, device_types)]


def _document(lined: Document, device_types: DeviceSharings) -> Iterator[tuple[Path, str]]:
    if isinstance(lined.value, dict):
        yield from unserved(lined.value)
    for path, pod, scheduled in _pods(lined.value, ()):
        if not path and "kind" not in pod:
            yield (), "this looks like a Pod, but kubectl takes it only with apiVersion: v1 and kind: Pod"
        yield from _pod(path, pod, scheduled, device_types)


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


def _pod(path: Path, pod: dict[str, Any], scheduled: str | None, device_types: DeviceSharings) -> Iterator[tuple[Path, str]]:
    yield from (((*path, *below), text) for below, text in requested(pod, "Pod"))
    notes = (pod.get("metadata") or {}).get("annotations")
    yield from _annotations((*path, "metadata", "annotations"), notes, device_types)
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    device_requests = amiss = False
    for key in ("initContainers", "containers"):
        listed = spec.get(key)
        for number, container in enumerate(listed if isinstance(listed, list) else ()):
            resources = container.get("resources") if isinstance(container, dict) else None
            if isinstance(resources, dict):
                here = (*path, "spec", key, number, "resources")
                found = list(_container(here, resources, device_types))
                device_requests, amiss = device_requests or _wants(resources, device_types), amiss or bool(found)
                yield from found
                yield from _both((*path, "metadata", "annotations"), resources.get("limits"), notes, device_types)
    if device_requests and (spec.get("schedulerName") or scheduled) in (None, names.KUBE_SCHEDULER):
        yield (*path, "spec"), "the pod asks for shares of cards, but its schedulerName is not volcano: nobody chooses its cards"
    yield from _as_a_whole((*path, "spec"), pod, device_types, amiss=amiss)


def _wants(resources: dict[str, Any], device_types: DeviceSharings) -> bool:
    limits = resources.get("limits")
    ours = {name for device_type in device_types for name in (device_type.tunables.count, device_type.tunables.memory) if name}
    return isinstance(limits, dict) and not ours.isdisjoint(limits)


def _annotations(path: Path, notes: Any, device_types: DeviceSharings) -> Iterator[tuple[Path, str]]:
    if not isinstance(notes, dict):
        return
    read = {key: values for device_type in device_types for key, values in device_type.steering.items()}
    written = {key for device_type in device_types for key in device_type.allocation_keys}
    modes = {device_type.tunables.mode for device_type in device_types}
    for key, value in notes.items():
        here = (*path, key)
        if read.get(key) and value not in read[key]:
            allowed = " or ".join(read[key])
            amiss, near = "matches no card" if key in modes else "does nothing", nearest(str(value), read[key])
            yield here, f"{key}: {value!r} {amiss}; write {allowed}{near}"
        elif key in written:
            yield here, f"{key} is written by the scheduler; a manifest must not carry it"
        elif key in hami_names.ANNOTATIONS:
            yield here, f"{key} is HAMi's name; here it is {hami_names.ANNOTATIONS[key]}"
        elif key not in read and not isinstance(value, dict | list):
            cutoff = 0.8 if str(key).split("/")[0] in (names.DOMAIN, names.NVIDIA_DOMAIN, names.OUR_DOMAIN, "nvidia.sh") else 0.9
            for close in difflib.get_close_matches(str(key), (*read, *GROUP_KEYS), n=1, cutoff=cutoff):
                if close != key:
                    yield here, f"nobody reads the annotation {key}; did you mean {close!r}?"
    for device_type in device_types:
        for key, text in device_type.remarks({}, notes):
            yield (*path, key), text


def _both(path: Path, limits: Any, notes: Any, device_types: DeviceSharings) -> Iterator[tuple[Path, str]]:
    """Yield what neither a container's limits nor the pod's annotations tell alone."""
    if not isinstance(limits, dict) or not isinstance(notes, dict):
        return
    for device_type in device_types:
        alone = {*device_type.remarks(limits, {}), *device_type.remarks({}, notes)}
        yield from (((*path, key), text) for key, text in device_type.remarks(limits, notes) if (key, text) not in alone)


def _container(path: Path, resources: dict[str, Any], device_types: DeviceSharings) -> Iterator[tuple[Path, str]]:
    known = {name: device_type.tunables for device_type in device_types for name in device_type.tunables.resources}
    for section in ("limits", "requests"):
        values = resources.get(section)
        for key, value in values.items() if isinstance(values, dict) else ():
            here = (*path, section, key)
            if key not in known:
                near = nearest(key, known)
                if key == hami_names.PRIORITY:
                    yield here, f"nobody offers {key}: the pod never starts; `pumice convert` writes what HAMi's webhook would"
                elif key in names.SAME_ELSEWHERE and key != names.WHOLE_GPU:  # that one is NVIDIA's own plugin's too
                    yield here, f"{key} is HAMi's name; here it is {names.SAME_ELSEWHERE[key]}"
                elif ((near and "/" in key) or "gpu" in key.lower()) and not key.startswith(f"{names.NVIDIA_DOMAIN}/"):
                    yield here, f"nobody offers the resource {key}{near}"
                continue
            yield from ((here, text) for text in _value(key, value, known[key]))
            if section == "requests" and key not in (resources.get("limits") or {}):
                yield here, f"{key} in requests alone does nothing; write it under limits"
    limits = resources.get("limits")
    if not isinstance(limits, dict):
        return
    for device_type in device_types:
        yield from (((*path, "limits", key), text) for key, text in _together(limits, device_type.tunables))
        yield from (((*path, "limits", *((key,) if key else ())), text) for key, text in device_type.remarks(limits, {}))


def _value(key: str, value: Any, own: Tunables) -> Iterator[str]:
    """``own``: what the device type of that resource calls its resources."""
    memory = key == own.memory
    mib, unit = meant_mib(value) if memory else (0, "")
    try:
        amount = parse_quantity(value)
    except (ValueError, TypeError):
        what = "nothing" if value in (None, "") else repr(value)
        yield f"{key}: {what} is not a quantity{_meant(key, value, mib, own)}"
        return
    if amount.denominator != 1:
        counts = f"{round_up(value)}" if own.rounds_up else f"0{_part(key, float(amount), own)}"
        yield f"{key}: {value} is not a whole number and counts as {counts}"
        return
    number = int(amount)
    if mib:
        written = f"{value} {unit}" if str(value).isdecimal() else value
        yield f"{key}: {value} is {number} MiB, more than any card has; for {written} of memory write {mib}"
    elif memory and 0 < number < 64:
        yield f"{key}: {value} is {number} MiB; for {number} GiB write {number * 1024}"
    elif key == own.cores and number > 100:
        several = f"for several cards write {own.count}"
        yield f"{key}: {value} is in per cent of one card; above 100 it fits nowhere; {several}"
    elif key == own.percent and number > 100:
        meaning = "is read as not given" if number == 101 else "fits nowhere"
        yield f"{key}: {value} is in per cent of one card; {number} {meaning}"
    elif key == own.count and number == 0:
        yield f"{key}: 0 asks for no card"
    elif number < 0:
        yield f"{key}: {value} is negative"


def _meant(key: str, value: Any, mib: int, own: Tunables) -> str:
    """The nearest right thing for what is no number at all."""
    if mib:
        return f"; this counts MiB, without a unit: write {mib}"
    if percent := percent_of(value):
        name = own.percent if key == own.memory else key
        return f"; write {name}: {percent}" if name else ""
    return "; write a whole number" + (" of MiB, for example 3000" if key == own.memory else "")


def _part(key: str, value: float, own: Tunables) -> str:
    """Return what to write for a part of a unit."""
    if key == own.count and 0 < value < 1 and own.memory and own.cores:
        memory = f"{own.percent}: {100 * value:.0f}" if own.percent else f"some {own.memory}"
        return f"; for a part of a card write {key}: 1 with {memory} and {own.cores}: {100 * value:.0f}"
    if key in (own.cores, own.percent):
        return f"; it is in per cent: write {100 * value if value < 1 else value:.0f}"
    if key == own.memory:
        mib = f"; it is in MiB: for {value:g} GiB write {1024 * value:.0f}" if value < 512 else ""
        return f", which is a whole card{mib}"
    return ""


def _together(limits: dict[str, Any], own: Tunables) -> Iterator[tuple[str, str]]:
    """Of one device type: amounts without a card, and amounts of which one counts."""
    for name in (own.cores, own.percent):
        if name in limits and own.count not in limits and own.memory not in limits:
            yield name, f"{name} alone asks for no card; add {own.count}: 1"
    if own.memory in limits and own.percent in limits:
        yield own.memory, f"the percentage wins; {own.memory} is not looked at"


def _as_a_whole(path: Path, pod: dict[str, Any], device_types: DeviceSharings, *, amiss: bool) -> Iterator[tuple[Path, str]]:
    """Yield what only the scheduler's own reading of the pod tells. ``amiss``: something of an amount was told already."""
    try:
        spec = {key: value for key, value in pod["spec"].items() if key in ("containers", "initContainers")}
        labels = (pod.get("metadata") or {}).get("labels")
        read = convert(Pod, {"metadata": {"labels": labels} if isinstance(labels, dict) else {}, "spec": spec})
    except msgspec.ValidationError as error:
        yield path, f"no pod that the API server would take: {error}"
        return
    for device_type in device_types:
        device_request = device_type.device_request(read)
        if isinstance(device_request, Refusal) and "init container" in device_request.field and "asks for" in device_request.text:
            yield path, f"{device_request.field} {device_request.text}"
        elif isinstance(device_request, Refusal) and (
            device_request.field.startswith("label ")
            or (device_request.field == device_type.tunables.count and not amiss)
        ):
            yield path, f"{device_request.field}: {device_request.text}"


# -- Findings in objects of Kubernetes and Volcano --------------------------------------------------------------------

# What they ask for that has no effect yet.

ASKED: Mapping[str, tuple[type[Any], Callable[[Any], tuple[Row, ...]]]] = {
    "Pod": (Pod, asked_by_pod), "Queue": (Queue, asked_by_queue),
}  # fmt: skip


def requested(value: Any, kind: str) -> Iterator[tuple[Path, str]]:
    """(where, sentence) for each field of an object of that kind."""
    slice_of, rows_of = ASKED[kind]
    try:
        found = rows_of(convert(slice_of, value))
    except (msgspec.ValidationError, AttributeError, TypeError):
        return  # what it is in place of an object is somebody else's finding
    for row in found:
        yield row.path, row.field_text


def _of_queue(path: Path, notes: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    yield from (((*path, key), text) for key, text in misnamed_in(notes))
    for key in notes.keys() - set(ANNOTATIONS):
        for close in difflib.get_close_matches(str(key), ANNOTATIONS, n=1, cutoff=0.8):
            yield (*path, key), f"nobody reads the annotation {key}; did you mean {close!r}?"


def unserved(value: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The same for a whole document: queues, and kinds that nothing serves. Lists are gone through."""
    kind, version = value.get("kind"), str(value.get("apiVersion", ""))
    if kind == "List" and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"]):
            if isinstance(item, dict):
                yield from ((("items", number, *path), text) for path, text in unserved(item))
    elif kind == "Queue" and version.startswith("scheduling."):
        yield from requested(value, kind)
        notes = (value.get("metadata") or {}).get("annotations")
        yield from _of_queue(("metadata", "annotations"), notes if isinstance(notes, dict) else {})
    else:
        row = rows(What.KIND).get(str(kind))
        if row is not None and row.resource is not None and version.startswith(f"{row.resource.group}/"):
            yield ("kind",), row.text
