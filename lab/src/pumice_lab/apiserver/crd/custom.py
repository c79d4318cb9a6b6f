"""Properties of a custom kind beyond a built-in one's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice_lab.apiserver.crd.strategy import CustomStrategy
from pumice_lab.apiserver.tables.column import Column

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CustomKind:
    """The additions of a custom kind to a built-in one. ``published`` is its schema for OpenAPI."""

    storage_version: str
    columns: tuple[Column, ...]
    published: Json
    strategy: CustomStrategy
    selectable: frozenset[str] = frozenset()
    digest: str = ""
    older: bool = False  # there may be objects that lack a default, for they were stored before there was one
    webhook: Json | None = None  # who converts its objects from one version to another
    paths: Mapping[str, str] = field(default_factory=dict)
