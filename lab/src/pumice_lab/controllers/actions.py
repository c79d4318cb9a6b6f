"""Effects of a controller: the effects of all, and two of these controllers' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue

Json = dict[str, Any]
View = Mapping[str, Any]  # an object that is only read


@dataclass(frozen=True, slots=True)
class Finalize:
    """Empty a namespace's spec.finalizers, after which the API server lets it go."""

    namespace: Json


@dataclass(frozen=True, slots=True)
class RemoveFolder:
    """Remove the volume data that pods have left at this path of the nodes."""

    path: str


@dataclass(frozen=True, slots=True)
class InOrder:
    """Patches of which each waits for the one before, and is left out where that was refused."""

    steps: tuple[Patch, ...]


Action = Create | Delete | Patch | Event | Requeue | Finalize | RemoveFolder | InOrder
