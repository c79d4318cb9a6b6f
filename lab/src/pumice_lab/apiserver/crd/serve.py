"""Keeps the registry in step with the CustomResourceDefinitions in storage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.crd.schema import Schema, has_default, shape_of
from pumice_lab.apiserver.crd.strategy import CustomStrategy
from pumice_lab.apiserver.registry import Kind, ScalePaths
from pumice_lab.apiserver.resource_store import Stored, StoreEvent
from pumice_lab.apiserver.schema.shape import Types
from pumice_lab.apiserver.tables.printer import Column

DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


class CustomKinds:
    """Serves every definition that is stored, from the moment it is staged; a deleted one takes its objects along."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        for stored in backend.storage.objects(DEFINITIONS):
            self._serve(stored)
        backend.storage.hooks[DEFINITIONS] = self._changed

    def _changed(self, event: StoreEvent) -> None:
        spec = event.stored.value()["spec"]
        self._backend.registry.drop_group_resource(spec["group"], spec["names"]["plural"])
        if event.change == "DELETED":
            storage = self._backend.storage
            for stored in storage.objects(f"{spec['group']}/{spec['names']['plural']}"):
                storage.remove(stored.resource, stored.namespace, stored.name, stored.value())
        else:
            self._serve(event.stored)

    def _serve(self, stored: Stored) -> None:
        for kind in kinds_of(stored.value(), self._backend.registry.types):
            self._backend.registry.add(kind)
            assert kind.custom is not None
            if kind.api_version == kind.custom.storage_version:
                self._backend.use(kind, kind.custom.strategy)


# -- From a CustomResourceDefinition object to the kinds that it adds, one per served version -------------------------


Json = dict[str, Any]


def kinds_of(definition: Json, types: Types) -> list[Kind]:
    """The kinds of a valid CRD object."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        raw = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
        subresources = version.get("subresources") or {}
        paths = tuple(f["jsonPath"].removeprefix(".") for f in version.get("selectableFields") or [])
        has_status = "status" in subresources
        custom = CustomKind(
            storage_version=f"{group}/{storage_version}",
            columns=tuple(_column(c) for c in version.get("additionalPrinterColumns") or []),
            published=raw,
            strategy=CustomStrategy(Schema(raw), has_status, paths),
            selectable=frozenset(paths),
            older=definition["metadata"].get("generation", 1) > 1 and has_default(raw),
            webhook=_converter(spec.get("conversion") or {}),
            digest=hashlib.sha256(msgspec.json.encode(raw)).hexdigest(),
        )
        found.append(
            Kind(
                group=group,
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names.get("singular") or names["kind"].lower(),
                storage=f"{group}/{names['plural']}",
                shape=shape_of(raw, types),
                short=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                namespaced=spec.get("scope") == "Namespaced",
                status=has_status,
                scale=_scale(subresources.get("scale")),
                list_kind=names.get("listKind") or f"{names['kind']}List",
                custom=custom,
            )
        )
    return found


def _converter(conversion: Json) -> Json | None:
    return conversion.get("webhook") or {} if conversion.get("strategy") == "Webhook" else None


def _column(column: Json) -> Column:
    return Column(column["name"], column.get("type", "string"), column.get("jsonPath", ""), column.get("priority", 0),
                  column.get("description", ""), column.get("format", ""))  # fmt: skip


def _scale(scale: Json | None) -> ScalePaths | None:
    if not scale:
        return None
    return ScalePaths(
        scale.get("specReplicasPath", "").removeprefix("."),
        scale.get("statusReplicasPath", "").removeprefix("."),
        scale.get("labelSelectorPath", "").removeprefix("."),
    )


# -- Properties of a custom kind beyond a built-in one's -------------------------------------------------------------



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
