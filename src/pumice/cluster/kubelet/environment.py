"""A container's environment: expansion of ``$(NAME)``, the downward API, and which source wins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pumice.wire.quantity import parse_quantity

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
Json = Mapping[str, Any]


class ConfigMissing(Exception):
    """A ConfigMap, Secret or key that the pod names is not there. Reason CreateContainerConfigError, tried again."""


def expand(text: str, known: Mapping[str, str]) -> str:
    """``$(NAME)`` is replaced when known and left as it is otherwise; ``$$`` is a dollar sign."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return known.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replaced, text)


def build_environment(container: Json, pod: Json, *, facts: Mapping[str, str], base: Mapping[str, str],
                      plugins: Sequence[tuple[tuple[str, str], ...]],
                      maps: Mapping[str, Mapping[str, str] | None],
                      secrets: Mapping[str, Mapping[str, str] | None]) -> dict[str, str]:
    """Precedence, lowest first: ``base``, plugins' answers, envFrom, env. Raises ConfigMissing.

    Where two plugins set one variable the first one wins. ``$(NAME)`` in the pod's env sees the pod's own variables
    only, never a plugin's (observed). ``maps`` and ``secrets``: contents by name, None where missing. ``facts``: what
    the pod object does not hold yet (status.podIP, status.hostIP).
    """
    own: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        own.update(_from_source(source, maps, secrets))
    for entry in container.get("env") or ():
        name = entry["name"]
        if entry.get("valueFrom"):
            value = _value_from(entry["valueFrom"], container, pod, facts, maps, secrets)
            if value is not None:
                own[name] = value
        else:
            own[name] = expand(entry.get("value") or "", own)
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
