"""Words that no parser knows, offered where one is completed: names of objects, shares of this machine, models of cards.

A parameter says which it takes beside its option: ``Annotated[str, flags.Option(...), names_of(QUEUES)]``. Whoever presses the
tabulator waits, so what does not come at once is not offered; and no error is told in the middle of somebody's line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.model.errors import PumiceError

if TYPE_CHECKING:
    from pumice.ports.cluster import Cluster, Json, Resource

PATIENCE = 1.0
"""Seconds for an API server to answer."""


@dataclass(frozen=True, slots=True)
class Given:
    """The words before the one to complete. ``options`` by the names of their parameters; ``arguments``: what is of no option."""

    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    begun: str = ""


@dataclass(frozen=True, slots=True)
class Offers:
    """The candidates of a parameter's value, for completion."""

    words: Callable[[Given], Iterable[str]]

    def of(self, given: Given) -> list[str]:
        try:
            return list(self.words(given))
        except (PumiceError, OSError, ImportError):  # no server, no such file, or an extra that is not installed
            return []


def fixed(*words: str) -> Offers:
    return Offers(lambda _: words)


def names_of(resource: Resource) -> Offers:
    """Names of objects, in the namespace that is given."""
    return Offers(lambda given: names(resource, given))


def names(resource: Resource, given: Given) -> list[str]:
    from pumice.cli.question import ask

    namespace = "" if "all_namespaces" in given.options else given.options.get("namespace", "default")

    async def question(kube: Cluster) -> Json:
        async with asyncio.timeout(PATIENCE):
            return await kube.list(resource, namespace)

    kubeconfig = given.options.get("kubeconfig")
    found = ask(Path(kubeconfig) if kubeconfig else None, given.options.get("master", ""), question)
    return sorted({each["metadata"]["name"] for each in found["items"] or ()})


def _namespaces(given: Given) -> list[str]:
    from pumice.wire.kinds import NAMESPACES

    return names(NAMESPACES, given)


def _shares(given: Given) -> list[str]:
    from pumice.adapters.bookings.book import living
    from pumice.cli.local_view import places

    return [booking.id for place in places(given.options.get("emulated")) for booking in living(place.directory)]


def _models(_: Given) -> list[str]:
    from pumice.model.hardware import preset_names

    return list(preset_names())


NAMESPACES, SHARES, MODELS = map(Offers, (_namespaces, _shares, _models))
