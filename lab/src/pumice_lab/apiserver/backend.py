"""The context of every verb: storage, kinds, rules, time and random generator, bundled once."""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

from pumice.ports.clock import Clock
from pumice.wire.times import stamp
from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.fairness import Watches
from pumice_lab.apiserver.http_types import Request
from pumice_lab.apiserver.registry import Kind, Registry
from pumice_lab.apiserver.resource_store import Index, Stored
from pumice_lab.apiserver.storage import Storage
from pumice_lab.apiserver.strategies import DEFAULT, builtin_strategies
from pumice_lab.apiserver.strategies.base import Strategy

Json = dict[str, Any]
LONGEST = (1 << 63) / 1e9
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: generated names spell nothing


class Backend:
    """Storage and registry with the rules between them. All look-ups are synchronous and see staged writes."""

    def __init__(self, storage: Storage, registry: Registry, clock: Clock, rng: Random, *, mounts_tokens: bool) -> None:
        self.storage, self.registry, self.clock, self.rng = storage, registry, clock, rng
        self.mounts_tokens = mounts_tokens
        self.strategies: dict[tuple[str, str], Strategy] = dict(builtin_strategies())
        self._by_store: dict[str, Strategy] = {
            kind.storage: self.strategy(kind) for kind in registry if kind.group != "events.k8s.io"
        }
        storage.indexer = self.index
        self.watches = Watches()

    def strategy(self, kind: Kind) -> Strategy:
        return kind.custom.strategy if kind.custom else self.strategies.get(kind.id, DEFAULT)

    def use(self, kind: Kind, strategy: Strategy) -> None:
        """Rules of a custom kind, for its index of selectable fields."""
        self._by_store[kind.storage] = strategy

    def index(self, store: str, value: Json) -> Index:
        metadata = value.get("metadata") or {}
        fields: Mapping[str, str] = self._by_store.get(store, DEFAULT).fields(value)
        own = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
        return metadata.get("labels") or {}, {**own, **fields}

    def read(self, store: str, namespace: str, name: str) -> Json | None:
        stored: Stored | None = self.storage.get(store, namespace, name)
        return stored.value() if stored else None

    def now(self, after: float = 0.0) -> str:
        """The time as metav1.Time, ``after`` seconds from now; at most the 292 years that a duration of Go's can be."""
        return stamp(self.clock.now() + min(after, LONGEST))

    def uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def name_from(self, prefix: str) -> str:
        return prefix[:58] + "".join(self.rng.choice(_SUFFIX) for _ in range(5))


# -- Questions to others from within a write ------------------------------------------------------------------------


T = TypeVar("T")
TRIES = 5
"""For what others change while somebody is asked about it."""


class Waits(Exception):
    """Somebody has to be asked first."""

    @property
    @abstractmethod
    def about(self) -> tuple[str, ...]:
        """Return the key of a question, the same from one try to the next; its last word is a name."""

    @abstractmethod
    async def settle(self, backend: Backend, request: Request) -> None:
        """Asks, and keeps the answer for the next try. Raises ApiFailure."""


async def nothing() -> None:
    """Before a try that waits for nobody."""


async def made(backend: Backend, request: Request, make: Callable[[], T], before: Callable[[], Awaitable[None]] = nothing) -> T:
    """Return the result of ``make``, tried again whenever a part of it had to be asked for; ``before`` comes before each try."""
    tries: dict[tuple[str, ...], int] = {}
    while True:
        await before()
        try:
            return make()
        except Waits as waits:
            tries[waits.about] = tries.get(waits.about, 0) + 1
            if tries[waits.about] > TRIES:
                raise ApiFailure(409, "Conflict", f"{waits.about[-1]!r} changes faster than its webhooks answer; please apply "
                                 "your changes to the latest version and try again") from None  # fmt: skip
            await waits.settle(backend, request)
            await asyncio.sleep(0)
