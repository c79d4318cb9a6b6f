"""From a CustomResourceDefinition object to the kinds that it adds, one per served version."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pumice_lab.apiserver.crd.custom import CustomKind
from pumice_lab.apiserver.crd.schema import Schema, has_default, shape_of
from pumice_lab.apiserver.crd.strategy import CustomStrategy
from pumice_lab.apiserver.registry import Kind, ScalePaths
from pumice_lab.apiserver.schema.shape import Types
from pumice_lab.apiserver.tables.column import Column

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
