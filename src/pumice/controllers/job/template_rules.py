"""What may be wrong with a task's pod template, in the words of Kubernetes' field errors (spec volcano-core 20.2).

Not all that an API server checks of a pod: what a Job's pods would all fail with, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from pumice.wire.batch import Task
from pumice.wire.quantity import parse_quantity

Json = Mapping[str, Any]

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


def name_problems(name: str) -> str:
    """Why this cannot be the value of a label and the name of a Service, as upstream prints it; empty where it can."""
    found = []
    if len(name) > LABEL:
        found.append(f"name part must be no more than {LABEL} characters")
    if not re.fullmatch(_NAME_PATTERN, name):
        found.append(NOT_A_NAME)
    return f"[{' '.join(found)}]" if found else ""


def template_problems(task: Task, index: int) -> str:
    """Empty where the template is one."""
    try:
        template = msgspec.json.decode(task.template) if bytes(task.template) else {}
    except msgspec.DecodeError as error:
        return f"spec.task[{index}].template: {error}"
    found = list(_template(template if isinstance(template, dict) else {}))
    return f"spec.task[{index}]." + ". ".join(found) + ". " if found else ""


def cpu_problems(task: Task, index: int) -> Iterator[str]:
    """A task bound to NUMA nodes asks for whole CPUs."""
    if task.topology_policy in ("", "none"):
        return
    template = msgspec.json.decode(task.template)
    for number, container in enumerate(template.get("spec", {}).get("containers", ())):
        resources = container.get("resources") or {}
        asked = (resources.get("requests") or resources.get("limits") or {}).get("cpu", 0)
        try:
            whole = parse_quantity(asked).denominator == 1
        except ValueError:
            whole = False
        if not whole:
            yield f"the cpu request isn't an integer in spec.task[{index}] container[{number}]."


def _template(template: Json) -> Iterator[str]:
    spec = template.get("spec")
    path = "template.spec"
    if not isinstance(spec, dict):
        yield f"{path}: Required value"
        return
    containers = spec.get("containers") or []
    if not containers:
        yield f"{path}.containers: Required value"
    restart = spec.get("restartPolicy")
    if restart is not None and restart not in RESTART_POLICIES:
        supported = ", ".join(f'"{policy}"' for policy in RESTART_POLICIES)
        yield f'{path}.restartPolicy: Unsupported value: "{restart}": supported values: {supported}'
    volumes = {volume.get("name") for volume in spec.get("volumes") or () if isinstance(volume, dict)}
    seen = set[str]()
    for key in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(key) or ()):
            yield from _container(container, f"{path}.{key}[{number}]", seen, volumes)


def _container(container: Any, path: str, seen: set[str], volumes: set[Any]) -> Iterator[str]:
    if not isinstance(container, dict):
        yield f"{path}: Required value"
        return
    name = container.get("name") or ""
    if not name:
        yield f"{path}.name: Required value"
    elif len(name) > LABEL or not re.fullmatch(_LABEL_PATTERN, name):
        why = NOT_A_LABEL if len(name) <= LABEL else f"must be no more than {LABEL} characters"
        yield f'{path}.name: Invalid value: "{name}": {why}'
    elif name in seen:
        yield f'{path}.name: Duplicate value: "{name}"'
    seen.add(name)
    if not container.get("image"):
        yield f"{path}.image: Required value"
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if isinstance(mount, dict) and mount.get("name") not in volumes:
            yield f'{path}.volumeMounts[{number}].name: Not found: "{mount.get("name", "")}"'
    for kind in ("requests", "limits"):
        for resource, amount in ((container.get("resources") or {}).get(kind) or {}).items():
            try:
                negative = parse_quantity(amount) < 0
            except ValueError:
                yield f'{path}.resources.{kind}[{resource}]: Invalid value: "{amount}": not a quantity'
                continue
            if negative:
                yield f'{path}.resources.{kind}[{resource}]: Invalid value: "{amount}": must be greater than or equal to 0'
