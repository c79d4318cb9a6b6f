"""Mistakes in a task's pod template, in the words of Kubernetes' field errors.

Not all that an API server checks of a pod: what a Job's pods would all fail with, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pumice.wire.batch import Task
from pumice.wire.quantity import parse_quantity
from pumice_jobs.controllers.job.defaults import template

LABEL: Final = 63
_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
NOT_A_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
NOT_A_NAME: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PATTERN}')"
)
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


class _Resources(msgspec.Struct):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class _Mount(msgspec.Struct):
    name: str = ""


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    image: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    volume_mounts: list[_Mount] = []
    env: list[dict[str, Any]] = []
    ports: list[dict[str, Any]] = []


class _Spec(msgspec.Struct, rename="camel"):
    restart_policy: str = ""
    init_containers: list[_Container | None] = []
    containers: list[_Container | None] = []
    volumes: list[_Mount] = []


class _Meta(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Template(msgspec.Struct):
    """The fields that are read here, or added to where pods are made of the template."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec | None = None


def name_problems(name: str) -> str:
    """Return why this cannot be the value of a label and the name of a Service, as upstream prints it; empty where it can."""
    found = []
    if len(name) > LABEL:
        found.append(f"name part must be no more than {LABEL} characters")
    if not re.fullmatch(_NAME_PATTERN, name):
        found.append(NOT_A_NAME)
    return f"[{' '.join(found)}]" if found else ""


def template_problems(task: Task, index: int) -> str:
    """Empty where the template is one."""
    try:
        found = list(_problems(_read(task).spec))
    except msgspec.MsgspecError as error:
        return f"spec.task[{index}].template: {error}"
    return f"spec.task[{index}]." + ". ".join(found) + ". " if found else ""


def cpu_problems(task: Task, index: int) -> Iterator[str]:
    """A task bound to NUMA nodes asks for whole CPUs."""
    if task.topology_policy in ("", "none"):
        return
    try:
        spec = _read(task).spec or _Spec()
    except msgspec.MsgspecError:
        return  # which has been said
    for number, container in enumerate(spec.containers):
        resources = container.resources if container is not None else _Resources()
        try:
            whole = parse_quantity((resources.requests or resources.limits).get("cpu", 0)).denominator == 1
        except ValueError:
            whole = False
        if not whole:
            yield f"the cpu request isn't an integer in spec.task[{index}] container[{number}]."


def _read(task: Task) -> _Template:
    """Raises MsgspecError."""
    return msgspec.convert(template(task), _Template)


def _problems(spec: _Spec | None) -> Iterator[str]:
    path = "template.spec"
    if spec is None:
        yield f"{path}: Required value"
        return
    if not spec.containers:
        yield f"{path}.containers: Required value"
    if spec.restart_policy and spec.restart_policy not in RESTART_POLICIES:
        supported = ", ".join(f'"{policy}"' for policy in RESTART_POLICIES)
        yield f'{path}.restartPolicy: Unsupported value: "{spec.restart_policy}": supported values: {supported}'
    volumes, seen = {volume.name for volume in spec.volumes}, set[str]()
    for key, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, container in enumerate(containers):
            yield from _of_container(container, f"{path}.{key}[{number}]", seen, volumes)


def _of_container(container: _Container | None, path: str, seen: set[str], volumes: set[str]) -> Iterator[str]:
    if container is None:
        yield f"{path}: Required value"
        return
    name = container.name
    if not name:
        yield f"{path}.name: Required value"
    elif len(name) > LABEL or not re.fullmatch(_LABEL_PATTERN, name):
        why = NOT_A_LABEL if len(name) <= LABEL else f"must be no more than {LABEL} characters"
        yield f'{path}.name: Invalid value: "{name}": {why}'
    elif name in seen:
        yield f'{path}.name: Duplicate value: "{name}"'
    seen.add(name)
    if not container.image:
        yield f"{path}.image: Required value"
    for number, mount in enumerate(container.volume_mounts):
        if mount.name not in volumes:
            yield f'{path}.volumeMounts[{number}].name: Not found: "{mount.name}"'
    for kind, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
        for resource, amount in amounts.items():
            try:
                negative = parse_quantity(amount) < 0
            except ValueError:
                yield f'{path}.resources.{kind}[{resource}]: Invalid value: "{amount}": not a quantity'
                continue
            if negative:
                yield f'{path}.resources.{kind}[{resource}]: Invalid value: "{amount}": must be greater than or equal to 0'
