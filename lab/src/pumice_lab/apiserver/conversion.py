"""Custom objects in other versions than the one they are stored in (Kubernetes "Versions in CustomResourceDefinitions").

Without a webhook a version is a word at the head of the object. With one, whoever turns out to need an object in another version
waits until the webhook has been asked, and is answered from the beginning (as with admission webhooks, ``asking``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pumice_lab.apiserver.backend import Backend, Waits
from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.http_types import Request
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.webhooks import NoAnswer, ask

Json = dict[str, Any]
API: Final = "apiextensions.k8s.io/v1"
PATIENCE: Final = 30.0
_AT_ONCE: Final = 500
"""Objects in one question."""
_LARGEST: Final = 64 << 20
_KEPT: Final = ("labels", "annotations")
"""Of the metadata, what a webhook may change."""
_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Conversion:
    """Of one request: the objects that a webhook has converted for it."""

    answers: dict[bytes, bytes] = field(default_factory=dict)

    def to(self, api_version: str, kind: Kind, value: Json) -> Json:
        """Raises Unconverted."""
        if value.get("apiVersion") == api_version:
            return value
        if kind.custom is None or kind.custom.webhook is None:
            return {**value, "apiVersion": api_version}
        found = self.answers.get(_key(api_version, value))
        if found is None:
            raise Unconverted(self, kind, api_version, [value])
        converted = _decode(found)
        metadata = {key: part for key, part in value["metadata"].items() if key not in _KEPT}
        metadata |= {key: converted["metadata"][key] for key in _KEPT if converted["metadata"].get(key)}
        head = {"kind": value["kind"], "apiVersion": api_version, "metadata": metadata}
        return head | {key: part for key, part in converted.items() if key not in head}

    def need(self, kind: Kind, values: Iterable[Json]) -> None:
        """Raises Unconverted for all that are not known in the version of the kind, together."""
        if kind.custom is not None and kind.custom.webhook is not None:
            left = [value for value in values if value.get("apiVersion") != kind.api_version
                    and _key(kind.api_version, value) not in self.answers]  # fmt: skip
            if left:
                raise Unconverted(self, kind, kind.api_version, left)


class Unconverted(Waits):
    """A webhook has to be asked what objects are in another version."""

    def __init__(self, conversion: Conversion, kind: Kind, api_version: str, values: list[Json]) -> None:
        super().__init__(api_version)
        self.conversion, self.kind, self.api_version, self.values = conversion, kind, api_version, values

    @property
    def about(self) -> tuple[str, ...]:
        return (self.api_version, *(value["metadata"].get("name", "") for value in self.values[:1]))

    async def settle(self, backend: Backend, request: Request) -> None:
        """Raises InternalError where the webhook gives no answer of use."""
        for first in range(0, len(self.values), _AT_ONCE):
            values = self.values[first : first + _AT_ONCE]
            for value, found in zip(values, await self._requested(backend, values), strict=True):
                self.conversion.answers[_key(self.api_version, value)] = msgspec.json.encode(found)

    async def _requested(self, backend: Backend, values: list[Json]) -> list[Json]:
        assert self.kind.custom is not None
        webhook = self.kind.custom.webhook or {}
        asked = {"uid": backend.uid(), "desiredAPIVersion": self.api_version, "objects": values}
        review = {"apiVersion": API, "kind": "ConversionReview", "request": asked}
        said = f"conversion webhook for {values[0].get('apiVersion')}, Kind={self.kind.kind}"
        try:
            answer = await ask(backend, webhook.get("clientConfig") or {}, review, PATIENCE, _LARGEST)
            result = answer.get("result") or {}
            if result.get("status") != "Success":
                raise NoAnswer(str(result.get("message") or "no reason given"))
        except NoAnswer as problem:
            raise ApiFailure(500, "InternalError", f"{said} failed: {problem}") from problem
        found: list[Json] = answer.get("convertedObjects") or []
        if len(found) != len(values):
            raise ApiFailure(500, "InternalError", f"{said} returned {len(found)} objects, expected {len(values)}")
        for i, why in enumerate(map(self._problem, values, found)):
            if why:
                raise ApiFailure(500, "InternalError", f"{said} returned invalid object at index {i}: {why}")
        return found

    def _problem(self, value: Json, found: Any) -> str:
        """Return why an answer cannot stand for what was sent; empty when it can."""
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            return "no object"
        for key, word, wanted in (("apiVersion", "groupVersion", self.api_version), ("kind", "kind", value["kind"])):
            if found.get(key) != wanted:
                return f"invalid {word} (expected {wanted}, received {found.get(key)})"
        for key, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
            mine, other = value["metadata"].get(key, ""), found["metadata"].get(key, "")
            if mine != other:
                return f"must have the same {word}: {mine} != {other}"
        if any(not isinstance(found["metadata"].get(key) or {}, dict) for key in _KEPT):
            return "invalid labels or annotations"
        return ""


def _key(api_version: str, value: Json) -> bytes:
    """Return the key of a conversion: the object without the fields that the server sets anew with each try."""
    metadata = {key: value["metadata"].get(key) for key in _KEPT}
    return msgspec.json.encode([api_version, {**value, "metadata": metadata}])
