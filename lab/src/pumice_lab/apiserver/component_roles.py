"""The roles of Kubernetes' own components, read from ``component_roles.toml``, and who has them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

Json = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"
_CONTROLLER = "system:controller:"


def component_roles() -> Iterator[tuple[str, list[Json], list[Json]]]:
    """Name, rules and subjects of each; nobody has some from the beginning."""
    table = tomllib.loads(files(__package__).joinpath("component_roles.toml").read_text("utf-8"))
    bound: dict[str, list[str]] = table.pop("bound")
    for name, lines in table.items():
        own = [f"ServiceAccount kube-system/{name.removeprefix(_CONTROLLER)}"] if name.startswith(_CONTROLLER) else []
        yield name, [rule for line in lines for rule in _rules(line)], [_subject(text) for text in bound.get(name, own)]


def _rules(line: str) -> Iterator[Json]:
    verbs, _, rest = line.partition(": ")
    for what in rest.split():
        if what.startswith("/"):
            yield {"verbs": verbs.split(), "nonResourceURLs": [what]}
            continue
        resource, _, name = what.partition("=")
        group, _, plural = resource.partition("/")
        yield {"verbs": verbs.split(), "apiGroups": ["" if group == "core" else group], "resources": [plural],
               **({"resourceNames": [name]} if name else {})}  # fmt: skip


def _subject(text: str) -> Json:
    kind, _, name = text.partition(" ")
    if kind != "ServiceAccount":
        return {"apiGroup": _RBAC, "kind": kind, "name": name}
    namespace, _, name = name.partition("/")
    return {"kind": kind, "namespace": namespace, "name": name}
