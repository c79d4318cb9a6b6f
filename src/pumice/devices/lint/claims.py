"""Findings in ResourceClaims, their templates, DeviceClasses and ResourceSlices, and in quotas of queues by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pumice.cel.values import CelError
from pumice.claims.objects import ClaimDevices, Device, claim_of, class_of, slice_of
from pumice.claims.selecting import program_of
from pumice.devices.lint.finding import Finding
from pumice.model.errors import BadInput, nearest
from pumice.wire.document import Document
from pumice.wire.kubernetes import DEVICES
from pumice.wire.quantity import parse_quantity

READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    "ResourceClaim": claim_of, "ResourceClaimTemplate": claim_of, "DeviceClass": class_of, "ResourceSlice": slice_of,
}  # fmt: skip
AMOUNTS: Final = (("spec", "capability"), ("spec", "deserved"), ("spec", "guarantee", "resource"))
QUOTA: Final = "deviceclass/"


def lint_claims(documents: Iterable[tuple[str, Document]]) -> Iterator[Finding]:
    """Look at all files together: a claim may name a class of another one."""
    mine = [(file, one) for file, one in documents if isinstance(one.value, dict)]
    classes = {str((one.value.get("metadata") or {}).get("name")) for _, one in mine if one.value.get("kind") == "DeviceClass"}
    devices = [device for _, one in mine if one.value.get("kind") == "ResourceSlice" for device in _devices(one.value)]
    for file, one in mine:
        kind = str(one.value.get("kind"))
        if kind in READERS and str(one.value.get("apiVersion", "")).startswith(f"{DEVICES}/"):
            yield from _object(file, one, kind, classes, devices)
        elif kind == "Queue":
            yield from _quotas(file, one)


def _object(file: str, lined: Document, kind: str, classes: set[str], devices: list[Device]) -> Iterator[Finding]:
    try:
        found = READERS[kind](lined.value)
    except BadInput as error:
        yield Finding(file, lined.line("spec"), str(error), error=True)
        return
    version = str(lined.value.get("apiVersion"))
    if version != f"{DEVICES}/v1":
        yield Finding(file, lined.line("apiVersion"), f"{version} is not looked at; the scheduler reads {DEVICES}/v1")
    for path, expression in _selectors(lined.value.get("spec") or {}, ("spec",)):
        try:
            program_of(expression)
        except CelError as error:
            yield Finding(file, lined.line(*path), f"the selector does not compile: {error}", error=True)
    asked = getattr(found, "devices", None)
    if isinstance(asked, ClaimDevices):
        yield from _claim(file, lined, asked, classes, devices)


def _claim(file: str, lined: Document, asked: ClaimDevices, classes: set[str], devices: list[Device]) -> Iterator[Finding]:
    at: tuple[str, ...] = ("spec", "spec", "devices") if lined.value["kind"] == "ResourceClaimTemplate" else ("spec", "devices")
    keys = {key for device in devices for key in device.capacity}
    for number, request in enumerate(asked.requests):
        for one in (request.exactly,) if request.exactly is not None else request.first_available:
            line = lined.line(*at, "requests", number)
            if classes and one.device_class_name not in classes:
                wanted = one.device_class_name
                hint = nearest(wanted, classes)
                yield Finding(file, line, f"request {request.name}: no DeviceClass {wanted} among these files{hint}")
            for key in one.capacity.requests:
                if keys and key not in keys:
                    hint = nearest(key.rpartition("/")[2], keys)
                    yield Finding(file, line, f"request {request.name}: no device of these files has a capacity {key}{hint}")


def _devices(value: Mapping[str, Any]) -> tuple[Device, ...]:
    try:
        return slice_of(value).spec.devices
    except BadInput:
        return ()  # said where it stands


def _selectors(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every CEL expression below, and its place."""
    if isinstance(value, Mapping):
        cel = value.get("cel")
        if isinstance(cel, Mapping) and isinstance(cel.get("expression"), str):
            yield (*path, "cel", "expression"), cel["expression"]
        for key, below in value.items():
            yield from _selectors(below, (*path, key))
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from _selectors(below, (*path, at))


def _quotas(file: str, lined: Document) -> Iterator[Finding]:
    for path in AMOUNTS:
        amounts: Any = lined.value
        for key in path:
            amounts = amounts.get(key) if isinstance(amounts, Mapping) else None
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            if QUOTA not in str(name):
                continue
            capacity, _, class_ = str(name).partition(QUOTA)
            if not class_ or (capacity and (not capacity.endswith(".") or capacity == ".")):
                text = f"{name} names no class: write deviceclass/CLASS, or CAPACITY.deviceclass/CLASS"
                yield Finding(file, lined.line(*path, name), text)
                continue
            try:
                value = parse_quantity(amount)
            except (ValueError, TypeError):
                yield Finding(file, lined.line(*path, name), f"{name}: {amount!r} is no quantity; it bounds nothing")
                continue
            if path[-1] == "capability" and not capacity and value == 0:
                yield Finding(file, lined.line(*path, name), f"{name}: 0 devices is no bound, as with Volcano; leave it out")
