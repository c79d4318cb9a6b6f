"""Refusals of the API server in Kubernetes' words: HTTP code, reason and message of a ``Status`` object.

Reasons and codes: Kubernetes API conventions, "Response Status Kind".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class ApiFailure(Exception):
    """A refusal on its way to the client as a Status. ``details`` follows the StatusDetails type."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details or {}

    def status(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


UNSAID: Any = object()
"""Instead of a value that is too large to be said."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One bad field. ``type`` is a cause type of Kubernetes: FieldValueRequired, FieldValueInvalid, FieldValueDuplicate,
    FieldValueNotSupported, FieldValueForbidden, FieldValueTooLong, FieldValueTypeInvalid."""

    type: str
    field: str
    detail: str
    value: Any = None

    @property
    def text(self) -> str:
        if self.type in ("FieldValueRequired", "FieldValueForbidden") or self.value is UNSAID:
            said = _SAYS[self.type]
        else:
            said = f"{_SAYS[self.type]}: {_show(self.value)}"
        return f"{said}: {self.detail}" if self.detail else said


_SAYS = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueNotFound": "Not found",
    "FieldValueTypeInvalid": "Invalid value",
}


def _show(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, separators=(",", ":"))
    return "null" if value is None else str(value)


def required(field: str, detail: str = "") -> FieldProblem:
    return FieldProblem("FieldValueRequired", field, detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldProblem:
    return FieldProblem("FieldValueInvalid", field, detail, value)


def duplicate(field: str, value: Any) -> FieldProblem:
    return FieldProblem("FieldValueDuplicate", field, "", value)


def unsupported(field: str, value: Any, known: Sequence[str]) -> FieldProblem:
    return FieldProblem(
        "FieldValueNotSupported", field, "supported values: " + ", ".join(f'"{k}"' for k in known), value
    )


def forbidden_value(field: str, detail: str) -> FieldProblem:
    return FieldProblem("FieldValueForbidden", field, detail)


def invalid(group: str, kind: str, name: str, problems: Sequence[FieldProblem]) -> ApiFailure:
    """422: the object as a whole, with one cause per field."""
    texts = [f"{p.field}: {p.text}" for p in problems]
    said = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    causes = [{"reason": p.type, "message": p.text, "field": p.field} for p in problems]
    details = {**_details(group, kind, name), "causes": causes}
    return ApiFailure(422, "Invalid", f'{qualified} "{name}" is invalid: {said}', details)


def _resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> Json:
    return {**({"name": name} if name else {}), **({"group": group} if group else {}), "kind": plural}


def not_found(group: str, plural: str, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{_resource(group, plural)} "{name}" not found', _details(group, plural, name))


def too_many_requests() -> ApiFailure:
    return ApiFailure(429, "TooManyRequests", "Too many requests, please try again later.", {"retryAfterSeconds": 1})


def no_such_path() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, plural: str, name: str) -> ApiFailure:
    message = f'{_resource(group, plural)} "{name}" already exists'
    return ApiFailure(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiFailure:
    message = f'Operation cannot be fulfilled on {_resource(group, plural)} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, _details(group, plural, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(group: str, plural: str, name: str, why: str) -> ApiFailure:
    message = f'{_resource(group, plural)} "{name}" is forbidden: {why}'
    return ApiFailure(403, "Forbidden", message, _details(group, plural, name))


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def unauthorized() -> ApiFailure:
    return ApiFailure(401, "Unauthorized", "Unauthorized")


def method_not_allowed(what: str) -> ApiFailure:
    return ApiFailure(405, "MethodNotAllowed", f"{what} is not supported on resources of this kind")


def unsupported_media_type(message: str) -> ApiFailure:
    return ApiFailure(415, "UnsupportedMediaType", message)


def not_acceptable() -> ApiFailure:
    """Of an answer that is no list of objects, wanted as a Table alone."""
    return ApiFailure(406, "NotAcceptable", "only the following media types are accepted: application/json")


def expired(message: str) -> ApiFailure:
    return ApiFailure(410, "Expired", message)


def too_large(why: str) -> ApiFailure:
    return ApiFailure(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def not_stored(problem: sqlite3.Error) -> ApiFailure:
    """A write that the disk refused. Nothing of it is kept, and the next one is tried as if nothing had been."""
    if getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        message = f"the disk that holds the cluster's database is full ({problem}): the write was not stored, free some space"
        return ApiFailure(507, "InsufficientStorage", message)
    return ApiFailure(503, "ServiceUnavailable", f"the write was not stored: {problem}", {"retryAfterSeconds": 5})
