"""What a controller wants done, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.ports.cluster import Resource

Json = dict[str, Any]
View = Mapping[str, Any]  # an object that is only read


@dataclass(frozen=True, slots=True)
class Create:
    resource: Resource
    obj: Json


@dataclass(frozen=True, slots=True)
class Delete:
    """``propagation`` empty: the API server's default for the kind."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""
    propagation: str = ""
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch; ``uid`` is a precondition."""

    resource: Resource
    namespace: str
    name: str
    body: Json
    uid: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Finalize:
    """Empty a namespace's spec.finalizers, after which the API server lets it go."""

    namespace: Json


@dataclass(frozen=True, slots=True)
class Tell:
    """An event about an object."""

    about: Json
    kind: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoveFolder:
    """What pods have left at this path of the nodes."""

    path: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Reconcile the same object once more after so many seconds."""

    seconds: float


Action = Create | Delete | Patch | Finalize | Tell | RemoveFolder | LookAgain
