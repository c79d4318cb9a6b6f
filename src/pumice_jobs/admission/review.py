"""A request for admission, what it is judged by, and the answer: values only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pumice.wire.names import SCHEDULER_NAME

Json = dict[str, Any]
Patch = list[Json]
"""JSON patch (RFC 6902)."""
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


class View(Protocol):
    """The cluster as far as rules look at it. Nothing of it is changed."""

    def queue(self, name: str) -> Mapping[str, Any] | None: ...
    def queues(self) -> Iterable[Mapping[str, Any]]: ...
    def namespace(self, name: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """A resource group of Volcano's webhook: the nodes and the scheduler that pods of some namespaces, or with some annotations,
    are given (``volcano-admission.conf``)."""

    name: str
    key: str = ""
    """``namespace`` or ``annotation``; empty: the pod's own annotation names the group."""
    values: tuple[str, ...] = ()
    scheduler: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the webhook, from its flags and its configuration."""

    scheduler_name: str = SCHEDULER_NAME
    deepest: int = 5
    protect_root: bool = True
    check_allocated: bool = False
    groups: tuple[ResourceGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    operation: str
    namespace: str
    name: str
    object: Json
    """Empty for a deletion."""
    old: Json
    """Empty for a creation."""
    uid: str = ""
    """Of the ask: no other has it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a review. ``refused`` empty: it may be stored, as changed by ``patch``."""

    refused: str = ""
    patch: Patch = field(default_factory=list)
    warnings: tuple[str, ...] = ()


def read(review: Any) -> tuple[str, Request]:
    """(uid, request) of an AdmissionReview. Raises ValueError where it is none."""
    requested = review.get("request") if isinstance(review, dict) else None
    if not isinstance(requested, dict) or not isinstance(requested.get("uid"), str):
        raise ValueError("no AdmissionReview with a request and its uid")
    return requested["uid"], Request(
        str(requested.get("operation", "")), str(requested.get("namespace") or ""), str(requested.get("name") or ""),
        requested.get("object") or {}, requested.get("oldObject") or {}, requested["uid"],
    )  # fmt: skip


def render(uid: str, answer: Answer) -> Json:
    """The AdmissionReview that carries an answer."""
    response: Json = {"uid": uid, "allowed": not answer.refused}
    if answer.refused:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": answer.refused}
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(answer.patch).encode()).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def put(patch: Patch, path: str, value: Any) -> None:
    """Add or replace: ``add`` does both for members of an object."""
    patch.append({"op": "add", "path": path, "value": value})
