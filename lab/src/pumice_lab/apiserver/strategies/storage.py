"""Rules of PersistentVolumes and their claims (Kubernetes "Persistent Volumes"; ValidatePersistentVolume of its source)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value, required, unsupported
from pumice_lab.apiserver.strategies.base import Strategy, at
from pumice_lab.apiserver.strategies.podspec import EFFECTS
from pumice_lab.volume_sources import sources

Json = dict[str, Any]
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_POLICIES = ("Delete", "Recycle", "Retain")
_VOLUME_MODES = ("Block", "Filesystem")
_CLAIM_STAYS = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


class ClaimStrategy(Strategy):
    returns_deleted = True

    def default(self, value: Json) -> None:
        value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"phase": "Pending"}

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, problems = value["spec"], []
        if not spec.get("accessModes"):
            problems.append(required("spec.accessModes", "at least 1 access mode is required"))
        for mode in spec.get("accessModes") or []:
            if mode not in _MODES:
                problems.append(unsupported("spec.accessModes", mode, _MODES))
        storage = at(spec, "resources.requests.storage")
        if storage is None:
            problems.append(required("spec.resources[storage]"))
        elif parse_quantity(storage) <= 0:
            problems.append(invalid_value("spec.resources[storage]", storage, "must be greater than zero"))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        new, before = dict(value["spec"]), dict(old["spec"])
        for key in ("resources", "volumeAttributesClassName", *(() if before.get("volumeName") else ("volumeName",))):
            new.pop(key, None)
            before.pop(key, None)
        return [] if new == before else [forbidden_value("spec", _CLAIM_STAYS)]


class VolumeStrategy(Strategy):
    returns_deleted = True

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        if isinstance(spec.get("hostPath"), dict):
            spec["hostPath"].setdefault("type", "")

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"phase": "Pending"}

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, problems = value["spec"], []
        if not spec.get("accessModes"):
            problems.append(required("spec.accessModes"))
        for mode in spec.get("accessModes") or ():
            if mode not in _MODES:
                problems.append(unsupported("spec.accessModes", mode, _MODES))
        storage = at(spec, "capacity.storage")
        if storage is None:
            problems.append(required("spec.capacity"))
        elif parse_quantity(storage) <= 0:
            problems.append(invalid_value("spec.capacity[storage]", storage, "must be greater than zero"))
        for field, known in (("persistentVolumeReclaimPolicy", _POLICIES), ("volumeMode", _VOLUME_MODES)):
            if spec.get(field) not in known:
                problems.append(unsupported(f"spec.{field}", spec.get(field), known))
        return [*problems, *_source_problems(spec)]

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        if any(value["spec"].get(key) != old["spec"].get(key) for key in (*sources(value["spec"]), *sources(old["spec"]))):
            return [forbidden_value("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")]
        return []


def _source_problems(spec: Json) -> list[FieldProblem]:
    kinds, problems = sources(spec), []
    if not kinds:
        problems.append(required("spec", "must specify a volume type"))
    problems += [forbidden_value(f"spec.{key}", "may not specify more than 1 volume type") for key in kinds[1:]]
    for key in {"hostPath", "local"} & set(kinds):
        path = at(spec, f"{key}.path")
        if not path:
            problems.append(required(f"spec.{key}.path"))
        elif ".." in path.split("/"):
            problems.append(invalid_value(f"spec.{key}.path", path, "must not contain '..'"))
    affinity = spec.get("nodeAffinity")
    if kinds == ["local"] and affinity is None:
        problems.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if affinity is not None and not affinity.get("required"):
        problems.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
    elif affinity is not None and not affinity["required"].get("nodeSelectorTerms"):
        problems.append(required("spec.nodeAffinity.required.nodeSelectorTerms", "must have at least one node selector term"))
    return problems


STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("", "PersistentVolumeClaim"): ClaimStrategy(),
    ("", "PersistentVolume"): VolumeStrategy(),
}


# -- Rules of nodes -------------------------------------------------------------------------------------------------


class NodeStrategy(Strategy):
    selectable = frozenset(("metadata.name", "spec.unschedulable"))

    def default(self, value: Json) -> None:
        value.setdefault("spec", {})
        status = value.get("status")
        if status is not None and status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def validate(self, value: Json) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        seen: set[tuple[str, str]] = set()
        for i, taint in enumerate(value["spec"].get("taints") or []):
            path = f"spec.taints[{i}]"
            if taint.get("effect") not in EFFECTS:
                problems.append(unsupported(f"{path}.effect", taint.get("effect", ""), EFFECTS))
            key = (taint.get("key", ""), taint.get("effect", ""))
            if key in seen:
                problems.append(
                    FieldProblem("FieldValueDuplicate", path, "taints must be unique by key and effect pair", taint)
                )
            seen.add(key)
        for field in ("capacity", "allocatable"):
            for name, text in ((value.get("status") or {}).get(field) or {}).items():
                if parse_quantity(text) < 0:
                    detail = "must be greater than or equal to 0"
                    problems.append(invalid_value(f"status.{field}[{name}]", str(text), detail))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        before = old["spec"].get("podCIDR")
        if before and value["spec"].get("podCIDR") != before:
            return [forbidden_value("spec.podCIDR", 'node updates may not change podCIDR except from "" to valid')]
        provider = old["spec"].get("providerID")
        if provider and value["spec"].get("providerID") != provider:
            return [
                forbidden_value("spec.providerID", 'node updates may not change providerID except from "" to valid')
            ]
        return []

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if value.get("spec", {}).get("unschedulable") else "false"}
