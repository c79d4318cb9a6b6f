"""The kinds that are served: built-in ones from ``kinds.toml``, custom ones added and removed while the server runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pumice_lab.apiserver.schema.shape import ANY, Shape, Types

if TYPE_CHECKING:
    from pumice_lab.apiserver.crd.serve import CustomKind

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The places in which the scale subresource finds its numbers, as dotted paths."""

    spec: str = "spec.replicas"
    status: str = "status.replicas"
    selector: str = ""


@dataclass(frozen=True)
class Kind:
    """One kind in one version: names, scope, what can be done with it.

    ``storage`` is the name of the store in the storage; two kinds that name the same one show the same objects.
    ``virtual`` kinds are answered and never stored.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    storage: str
    shape: Shape = ANY
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    status: bool = False
    scale: ScalePaths | None = None
    subresources: tuple[str, ...] = ()
    virtual: bool = False
    list_kind: str = ""
    custom: CustomKind | None = field(default=None, compare=False)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def id(self) -> tuple[str, str]:
        """Group and kind, the key of rules that hold for every version."""
        return self.group, self.kind


class Registry:
    """Look-up by path segment, and the groups in the order in which discovery lists them."""

    def __init__(self, types: Types, kinds: Iterable[Kind]) -> None:
        self.types = types
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self.generation = 0  # grows with every change, for caches of discovery and OpenAPI
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self.generation += 1

    def drop_group_resource(self, group: str, plural: str) -> None:
        for key in [k for k in self._by_path if k[0] == group and k[2] == plural]:
            del self._by_path[key]
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def groups(self) -> dict[str, list[str]]:
        """Group -> versions, the core group (named "") left out."""
        found: dict[str, list[str]] = {}
        for kind in self:
            if kind.group and kind.version not in found.setdefault(kind.group, []):
                found[kind.group].append(kind.version)
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        return sorted((k for k in self if (k.group, k.version) == (group, version)), key=lambda k: k.plural)


def builtin(types: Types) -> Registry:
    """All built-in kinds with their shapes."""
    table: dict[str, dict[str, str]] = tomllib.loads(files(__package__).joinpath("kinds.toml").read_text("utf-8"))
    return Registry(types, (_parse(gv, kind, line, types) for gv, rows in table.items() for kind, line in rows.items()))


def _parse(group_version: str, kind: str, line: str, types: Types) -> Kind:
    group, _, version = group_version.rpartition("/")
    plural, *words = line.split()
    marks: dict[str, Any] = dict(word.partition("=")[::2] for word in words)

    def many(mark: str) -> tuple[str, ...]:
        return tuple(marks.get(mark, "").split(",")) if marks.get(mark) else ()

    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        storage=marks.get("storage", f"{group}/{plural}" if group else f"v1/{plural}"),
        shape=types.of_kind(group, version, kind) or ANY,
        short=many("short"),
        categories=many("cat"),
        namespaced="cluster" not in marks,
        verbs=many("verbs") or ALL_VERBS,
        status="status" in marks,
        scale=ScalePaths() if "scale" in marks else None,
        subresources=many("sub"),
        virtual="virtual" in marks,
        list_kind=f"{kind}List",
    )
