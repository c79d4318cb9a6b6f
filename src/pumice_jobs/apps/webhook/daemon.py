"""The admission server: watches in, and one answer for each ask."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
from aiohttp import web

from pumice.apps.service.http import host_and_port, pages, served
from pumice.apps.service.watches import Watcher
from pumice.effects.tasks import run_until
from pumice.metrics.text import Histogram
from pumice.model.errors import BadInput, nearest
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire.kinds import NAMESPACES
from pumice.wire.names import DEFAULT_QUEUE
from pumice.wire.volcano import QUEUES
from pumice_jobs.admission import review
from pumice_jobs.admission.review import Answer, Request
from pumice_jobs.admission.rules import BY_PATH, DEFAULT_PATHS, Rule, needed
from pumice_jobs.apps.webhook.registering import Place, Registrar
from pumice_jobs.metrics.controller import answer_seconds, webhook_page

log = logging.getLogger("pumice.webhook")

LARGEST = 3 << 20
"""Bytes of one ask."""


@dataclass(slots=True)
class Settings:
    rules: review.Settings = field(default_factory=review.Settings)
    paths: tuple[str, ...] = DEFAULT_PATHS
    listen: str = ":8443"
    health: str = ":11251"
    place: Place = field(default_factory=Place)


def paths_of(text: str) -> tuple[str, ...]:
    """``--enabled-admission``. Raises BadInput with the nearest right one."""
    found = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in found:
        if path not in BY_PATH:
            raise BadInput(f"--enabled-admission: nothing is decided at {path!r}{nearest(path, BY_PATH)}")
    return found


async def run(settings: Settings, *, cluster: Cluster, clock: Clock, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:  # fmt: skip
    """Run until ``stop``."""
    await Webhook(settings, cluster, clock, stop, ready).run()


class Webhook:
    """The admission webhook. ``waiting`` names what is missing until asks can be answered rightly; ``port`` is where they
    come."""

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock, stop: asyncio.Event,
                 ready: asyncio.Event | None = None) -> None:  # fmt: skip
        self.settings, self.cluster, self.clock, self.stop, self.ready = settings, cluster, clock, stop, ready
        self.rules = [BY_PATH[path] for path in settings.paths]
        self.watched = needed(self.rules)
        self.waiting = {"registration", *(resource.plural for resource in self.watched)}
        self.view = Watched(cluster)
        self.answers: dict[tuple[str, str], int] = {}
        self.seconds: Histogram = answer_seconds()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.port = 0

    async def run(self) -> None:
        registrar = Registrar(self.cluster, self.clock, self.settings.place, self.rules, self.tls)
        await registrar.identify()
        asks = {rule.path: partial(self._answer, rule) for rule in self.rules}
        own = pages(self._page, lambda: sorted(self.waiting))
        watcher = Watcher(self.cluster, self.clock, log, self._arrived)
        async with (
            served({}, *host_and_port(self.settings.listen), "pumice webhook", posts=asks, tls=self.tls, largest=LARGEST) as port,
            served(own, *host_and_port(self.settings.health), "pumice webhook's pages"),
        ):
            self.port = port
            watches = [self._watch(watcher, resource) for resource in self.watched]
            await run_until(self.stop, registrar.keep(partial(self._arrived, "registration")), *watches)

    async def _watch(self, watcher: Watcher, resource: Resource) -> None:
        take = partial(self.view.take, resource)
        await watcher.watch(resource.plural, resource, lambda event: watcher.taken(resource.plural, take, event))

    def _arrived(self, name: str) -> None:
        self.waiting.discard(name)
        if not self.waiting and self.ready is not None:
            self.ready.set()

    async def _answer(self, rule: Rule, ask: web.Request) -> web.Response:
        began = perf_counter()
        try:
            uid, request = review.read(msgspec.json.decode(await ask.read()))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._count(rule, "unreadable", began)
            return web.Response(status=400, text=f"{error}\n")
        try:
            await self.view.look_up(rule.word, request)
            answer = rule.decide(request, self.view, self.settings.rules)
        except Exception as error:  # whatever somebody wrote, it ends no server: the object is refused
            log.exception("ask at %s about %s/%s", rule.path, request.namespace, request.name)
            answer = Answer(f"pumice webhook cannot decide about it: {type(error).__name__}: {error}")
        self._count(rule, "refused" if answer.refused else "changed" if answer.patch else "allowed", began)
        if answer.refused:
            log.info("refused at=%s object=%s/%s: %s", rule.path, request.namespace, request.name, answer.refused)
        return web.json_response(review.render(uid, answer))

    def _count(self, rule: Rule, outcome: str, began: float) -> None:
        key = rule.path, outcome
        self.answers[key] = self.answers.get(key, 0) + 1
        self.seconds.observe(perf_counter() - began)

    async def _page(self) -> bytes:
        return webhook_page(self.answers, self.seconds).encode()


# -- The view of the cluster that the rules have ----------------------------------------------------------------------

# Watched, and asked for where a watch may be behind.

@dataclass(slots=True)
class Watched:
    cluster: Cluster
    objects: dict[Resource, dict[str, Json]] = field(default_factory=lambda: {QUEUES: {}, NAMESPACES: {}})

    def queue(self, name: str) -> Mapping[str, Any] | None:
        return self.objects[QUEUES].get(name)

    def queues(self) -> Iterable[Mapping[str, Any]]:
        return self.objects[QUEUES].values()

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        return self.objects[NAMESPACES].get(name)

    def take(self, resource: Resource, event: WatchEvent) -> None:
        found = msgspec.json.decode(event.raw)
        name = found["metadata"]["name"]
        if event.type == "DELETED":
            self.objects[resource].pop(name, None)
        else:
            self.objects[resource][name] = found

    async def look_up(self, word: str, request: Request) -> None:
        """A queue that was made a moment ago: its watch may be behind its user."""
        spec = request.object.get("spec") or {}
        if word == "cronjobs":
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        if word in ("jobs", "podgroups", "cronjobs"):
            await self._fetch(QUEUES, spec.get("queue") or DEFAULT_QUEUE)
        elif word == "queues" and spec.get("parent"):
            await self._fetch(QUEUES, spec["parent"])

    async def _fetch(self, resource: Resource, name: str) -> None:
        if name in self.objects[resource]:
            return
        try:
            self.objects[resource][name] = await self.cluster.get(resource, name)
        except ApiError as error:
            if error.code != 404:
                raise
