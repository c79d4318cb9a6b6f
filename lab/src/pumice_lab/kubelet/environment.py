"""A container's environment: expansion of ``$(NAME)``, the downward API, and which source wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.runtime.spec import StartFailed

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
Json = Mapping[str, Any]
ONE_STRING = 128 * 1024
"""Bytes of a variable or an argument with the zero behind it: MAX_ARG_STRLEN of Linux (execve(2))."""
ALL_STRINGS = 2 * 1024 * 1024
"""Bytes of them all: a quarter of a stack of 8 MiB."""


class ConfigMissing(Exception):
    """A ConfigMap, Secret or key that the pod names is not there. Reason CreateContainerConfigError, tried again."""


def expand(text: str, known: Mapping[str, str]) -> str:
    """``$(NAME)`` is replaced when known and left as it is otherwise; ``$$`` is a dollar sign.

    Raises StartFailed as soon as more is put in than Linux takes in one string: references multiply."""
    left = ONE_STRING

    def replaced(match: re.Match[str]) -> str:
        nonlocal left
        value = "$" if match.group(1) == "$" else known.get(match.group(2), match.group(0))
        left -= len(value)
        if left < 0:
            raise _too_long(text[:60], ONE_STRING)
        return value

    return _REFERENCE.sub(replaced, text)


def _too_long(what: str, most: int) -> StartFailed:
    return StartFailed("StartError", f'exec: "{what}" makes more than {most} bytes: argument list too long')


class _Strings:
    """Counts what a program is to be given. Raises StartFailed when it is more than Linux takes."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, text: str) -> None:
        size = _size(text)
        self.total += size
        for found, most in ((size, ONE_STRING), (self.total, ALL_STRINGS)):
            if found > most:
                raise _too_long(text[:60], most)


def _size(text: str) -> int:
    return len(text.encode(errors="replace")) + 1


def expand_all(words: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """The words of a command line. Raises StartFailed when they are more than Linux takes."""
    strings, expanded = _Strings(), list[str]()
    for word in words:
        expanded.append(expand(word, known))
        strings.add(expanded[-1])
    return expanded


def build_environment(container: Json, pod: Json, *, facts: Mapping[str, str], base: Mapping[str, str],
                      plugins: Sequence[tuple[tuple[str, str], ...]],
                      maps: Mapping[str, Mapping[str, str] | None],
                      secrets: Mapping[str, Mapping[str, str] | None]) -> dict[str, str]:
    """Precedence, lowest first: ``base``, plugins' answers, envFrom, env. Raises ConfigMissing, and StartFailed when the pod's
    own are more than Linux takes.

    Where two plugins set one variable the first one wins. ``$(NAME)`` in the pod's env sees the pod's own variables
    only, never a plugin's (observed). ``maps`` and ``secrets``: contents by name, None where missing. ``facts``: what
    the pod object does not hold yet (status.podIP, status.hostIP).
    """
    own, strings = dict[str, str](), _Strings()

    def put(name: str, value: str) -> None:
        if name in own:
            strings.total -= _size(f"{name}={own[name]}")
        strings.add(f"{name}={value}")
        own[name] = value

    for source in container.get("envFrom") or ():
        for name, value in _from_source(source, maps, secrets).items():
            put(name, value)
    for entry in container.get("env") or ():
        name = entry["name"]
        if entry.get("valueFrom"):
            found = _value_from(entry["valueFrom"], container, pod, facts, maps, secrets)
            if found is not None:
                put(name, found)
        else:
            put(name, expand(entry.get("value") or "", own))
    answered: dict[str, str] = {}
    for envs in plugins:
        for name, value in envs:
            answered.setdefault(name, value)
    return {**base, **answered, **own}


def _from_source(source: Json, maps: Mapping[str, Mapping[str, str] | None],
                 secrets: Mapping[str, Mapping[str, str] | None]) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for key, table, kind in (("configMapRef", maps, "configmap"), ("secretRef", secrets, "secret")):
        ref = source.get(key)
        if not ref:
            continue
        data = table.get(ref["name"])
        if data is None:
            if ref.get("optional"):
                return {}
            raise ConfigMissing(f'{kind} "{ref["name"]}" not found')
        return {prefix + name: value for name, value in data.items()}
    return {}


def _value_from(source: Json, container: Json, pod: Json, facts: Mapping[str, str],
                maps: Mapping[str, Mapping[str, str] | None],
                secrets: Mapping[str, Mapping[str, str] | None]) -> str | None:
    if ref := source.get("fieldRef"):
        return field_value(pod, ref["fieldPath"], facts)
    if ref := source.get("resourceFieldRef"):
        return resource_value(container, pod, ref)
    for key, table, kind in (("configMapKeyRef", maps, "configmap"), ("secretKeyRef", secrets, "secret")):
        if ref := source.get(key):
            data = table.get(ref["name"])
            if data is not None and ref["key"] in data:
                return data[ref["key"]]
            if ref.get("optional"):
                return None
            if data is None:
                raise ConfigMissing(f'{kind} "{ref["name"]}" not found')
            namespace = pod["metadata"].get("namespace", "default")
            raise ConfigMissing(f"couldn't find key {ref['key']} in {kind} {namespace}/{ref['name']}")
    return None


def field_value(pod: Json, path: str, facts: Mapping[str, str]) -> str:
    """A field of the downward API; labels and annotations also as a whole, for volumes."""
    meta = pod["metadata"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        table = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{name}="{_escaped(value)}"' for name, value in sorted(table.items()))
    if path in facts:
        return facts[path]
    value: Any = pod
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(container: Json, pod: Json, ref: Json) -> str:
    """``limits.cpu`` and its like, divided by the divisor and rounded up."""
    name = ref.get("containerName")
    if name:
        container = next((c for c in pod["spec"]["containers"] if c["name"] == name), container)
    kind, _, resource = ref["resource"].partition(".")
    amount = ((container.get("resources") or {}).get(kind) or {}).get(resource)
    if amount is None:
        return "0"
    divisor = parse_quantity(ref.get("divisor") or 1) or 1
    return str(-(-parse_quantity(amount) // divisor))
