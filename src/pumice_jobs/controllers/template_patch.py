"""The Job of a JobTemplate, changed as a step of a JobFlow says (design document of Volcano's JobFlow, "Job Template Parameter
Overriding"): what is not named stays, and entries of lists are told apart by a field of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

BY: Final[Mapping[str, tuple[str, ...]]] = {
    "tasks": ("name",), "containers": ("name",), "initContainers": ("name",), "env": ("name",), "hostAliases": ("ip",),
    "tolerations": ("key",), "volumes": ("name", "mountPath"), "volumeMounts": ("mountPath", "name"),
    "ports": ("containerPort",),
}  # fmt: skip
"""Lists that are merged, and what tells their entries apart: the first of these that an entry has. Others are replaced."""
WHOLE: Final = frozenset({"affinity", "securityContext", "livenessProbe", "readinessProbe", "startupProbe", "networkTopology"})
"""Objects that are replaced."""
WHOLE_ENTRIES: Final = frozenset({"env", "hostAliases", "tolerations", "ports"})
"""Lists whose entries are."""
ADDED: Final = "plugins"
"""Lists that are added to the arguments that a plugin has already."""


def patched(spec: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """The spec of a Job with a patch. Raises ValueError, in words, where it cannot be told what the patch is about."""
    found = dict(spec)
    for key, value in patch.items():
        there = spec.get(key)
        if key == "tasks":
            value = _named(there or (), value)
        found[key] = _more_arguments(there or {}, value) if key == ADDED else _merged(key, there, value)
    return found


def _more_arguments(there: Mapping[str, Sequence[str]], more: Mapping[str, Sequence[str]]) -> Json:
    return {**there, **{name: [*(there.get(name) or ()), *(new or ())] for name, new in more.items()}}


def _named(tasks: Sequence[Json], patches: Sequence[Json]) -> list[Json]:
    """A patch of a task that names none is about the only one."""
    found = []
    for patch in patches:
        if not patch.get("name") and len(tasks) != 1:
            raise ValueError(f"a task of the patch names none of the {len(tasks)} tasks")
        found.append(patch if patch.get("name") or "name" not in tasks[0] else {**patch, "name": tasks[0]["name"]})
    return found


def _merged(key: str, there: Any, new: Any) -> Any:
    if isinstance(there, dict) and isinstance(new, dict) and key not in WHOLE:
        return {**there, **{name: _merged(name, there.get(name), value) for name, value in new.items()}}
    if isinstance(there, list) and isinstance(new, list) and key in BY:
        return _list(key, there, new)
    return new


def _list(key: str, there: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    found = list(there)
    for entry in new:
        at = next((index for index, old in enumerate(found) if _same(key, old, entry)), None)
        if at is None:
            found.append(entry)
        elif key in WHOLE_ENTRIES or (key == "volumes" and "name" in entry):
            found[at] = entry
        else:
            found[at] = _merged("", found[at], entry)
    return found


def _same(key: str, old: Any, new: Any) -> bool:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return bool(old == new)
    by = next((name for name in BY[key] if name in new), None)
    return old.get(by) == new[by] if by is not None else not any(name in old for name in BY[key])
