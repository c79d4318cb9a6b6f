"""The pages of a cluster: each takes the words of its URL and gives a template and what stands in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice.ports.cluster import ApiError, Json
from pumice.scheduler.explaining.queues import QueueView
from pumice.web import reading
from pumice.web.drawing import charts
from pumice.web.following import Following, Situation, explained, placed
from pumice.web.monitors import Monitors, NodeUse
from pumice.web.values import NodeLine, PodLine, Summary
from pumice.wire.kinds import EVENTS, PODS
from pumice.wire.kubectl_columns import duration_since, pod_cells
from pumice.wire.objects import Pod, convert

NODES_SHOWN, PODS_SHOWN, GROUPS_SHOWN, NODES_NAMED, FOUND_SHOWN, EVENTS_SHOWN = 25, 100, 40, 12, 50, 30
"""Of each list on one page."""
LONGEST_QUERY = 200
SOON, SLOWLY, SILENT, ASKED_AT_ONCE, USES_KEPT = 0.3, 20.0, 120.0, 8, 1000
"""On the page of the cluster: seconds that it waits for monitors; seconds for which their figures, and that one has none, are
kept; how many are asked at once; and of how many nodes."""
ANSWERS_KEPT, ANSWER_BYTES = 256, 16 << 20
"""Of `pumice explain`; of a large cluster one is a megabyte."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One page before it is HTML."""

    template: str
    title: str
    words: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


class Missing(Exception):
    """There is no such thing; the text says what there is."""


Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pages:
    """A slice of a list: ``number`` from 1."""

    number: int
    last: int
    count: int

    @classmethod
    def of(cls, query: Query, count: int, size: int) -> Pages:
        last = max(1, -(-count // size))
        word = query.get("page", "1")
        number = int(word) if word.isascii() and word.isdigit() and len(word) < 7 else 1
        return cls(min(max(1, number), last), last, count)


@dataclass(slots=True)
class Views:
    """The views of a cluster. ``views`` by the last word of the URL's path."""

    following: Following
    monitors: Monitors
    _summary: tuple[int, Summary] | None = None
    _pods: tuple[int, list[PodLine]] | None = None
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _used: dict[str, NodeUse] = field(default_factory=dict)
    _few: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_ONCE))
    _explained: dict[str, tuple[int, float, bytes]] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, Callable[[Query], Awaitable[Shown]]]:
        return {
            "": self.cluster, "node": self.node, "card": self.card, "pods": self.pods, "pod": self.pod, "queues": self.queues,
            "queue": self.queue, "jobs": self.jobs, "job": self.job, "waiting": self.waiting, "changes": self.changes,
            "search": self.search,
        }  # fmt: skip

    def summary(self) -> Summary:
        version = self.following.version
        if self._summary is None or self._summary[0] != version:
            self._summary = version, reading.summary(self.following.engine)
        return self._summary[1]

    def pod_lines(self) -> list[PodLine]:
        version = self.following.version
        if self._pods is None or self._pods[0] != version:
            self._pods = version, reading.pod_lines(self.following.engine)
        return self._pods[1]

    # -- cluster, nodes, cards ----------------------------------------------------------------------------------

    async def cluster(self, query: Query) -> Shown:
        summary = self.summary()
        wanted, sort = query.get("q", "")[:LONGEST_QUERY].strip().lower(), query.get("sort", "name")
        lines = [line for line in summary.nodes if _matches(line, wanted)]
        orders: dict[str, Callable[[NodeLine], Any]] = {
            "fill": lambda line: (-line.fill, line.name), "free": lambda line: (-line.free, line.name),
            "closed": lambda line: (not line.remarked, line.name),
        }  # fmt: skip
        if sort in orders:
            lines.sort(key=orders[sort])
        pages = Pages.of(query, len(lines), NODES_SHOWN)
        begin = (pages.number - 1) * NODES_SHOWN
        found = [reading.node_view(self.following.engine, line.name) for line in lines[begin : begin + NODES_SHOWN]]
        nodes = [node for node in found if node is not None]
        uses = await self._uses([node.name for node in nodes if any(card.held for card in node.cards)])
        sums = {node.name: reading.node_sums(node, uses[node.name].pods, uses[node.name].unknown)
                for node in nodes if node.name in uses}  # fmt: skip
        return Shown("cluster", "Cluster", {
            "summary": summary, "nodes": nodes, "sums": sums, "pages": pages, "q": wanted, "sort": sort,
        })  # fmt: skip

    async def _uses(self, nodes: Sequence[str]) -> dict[str, NodeUse]:
        """Return what monitors tell of these nodes. The page does not wait: who is late is asked on, for the next look."""
        now, late = self.following.clock.now(), NodeUse(0.0, unknown="its monitor has not answered yet; look again")
        known = {name: told for name in nodes if (told := self._used.get(name)) is not None
                 and now - told.at < (SILENT if told.unknown else SLOWLY)}  # fmt: skip
        asked = {name: self._asking.get(name) or asyncio.ensure_future(self._use(name)) for name in nodes if name not in known}
        self._asking |= asked
        if asked:
            await asyncio.wait(asked.values(), timeout=SOON)
        return {name: known.get(name) or (self._used.get(name, late) if asked[name].done() else late) for name in nodes}

    async def _use(self, node: str) -> None:
        try:
            async with self._few:
                told = await self.monitors.of_node(node)
            self._used.pop(node, None)
            self._used[node] = told
            while len(self._used) > USES_KEPT:
                del self._used[next(iter(self._used))]
        finally:
            self._asking.pop(node, None)

    async def node(self, query: Query) -> Shown:
        name = query.get("name", "")
        node = reading.node_view(self.following.engine, name)
        if node is None:
            raise Missing(f"there is no node {name}{self._of_nodes()}")
        use = await self.monitors.of_node(name) if any(card.held for card in node.cards) else NodeUse(0.0)
        return Shown("node", f"Node {name}", {"node": node, "use": use})

    async def card(self, query: Query) -> Shown:
        name, uuid = query.get("node", ""), query.get("uuid", "")
        card = reading.card_view(self.following.engine, name, uuid)
        if card is None:
            raise Missing(f"node {name} registers no card {uuid}")
        use = await self.monitors.of_node(name) if card.held else NodeUse(0.0)
        return Shown("card", f"Card {card.index} of {name}", {"card": card, "use": use})

    def _of_nodes(self) -> str:
        lacks = self.following.lacking.get("nodes", "")
        return f"; nodes could not be listed: {lacks}" if lacks else ""

    # -- pods ---------------------------------------------------------------------------------------------------

    async def pods(self, query: Query) -> Shown:
        wanted, only = query.get("q", "")[:LONGEST_QUERY].strip().lower(), query.get("status", "")
        everything = self.pod_lines()
        statuses = Counter(line.status for line in everything)
        lines = [
            line for line in everything
            if (not wanted or wanted in line.key.lower() or wanted in line.node.lower()) and only in ("", line.status)
        ]  # fmt: skip
        pages = Pages.of(query, len(lines), PODS_SHOWN)
        begin = (pages.number - 1) * PODS_SHOWN
        return Shown("pods", "Pods", {
            "lines": lines[begin : begin + PODS_SHOWN], "pages": pages, "q": wanted, "only": only,
            "statuses": sorted(statuses.items()), "now": self.following.clock.now(),
        })  # fmt: skip

    async def pod(self, query: Query) -> Shown:
        namespace, name = query.get("namespace", "default"), query.get("name", "")
        key = f"{namespace}/{name}"
        engine, now = self.following.engine, self.following.clock.now()
        obj, unread = await self._object(namespace, name)
        uid = str((obj.get("metadata") or {}).get("uid", "")) if obj is not None else reading.uid_of(engine, key)
        known = uid in engine.state.tasks or uid in engine.state.ledger.placements
        if obj is None and not known:
            raise Missing(f"there is no pod {key}" if not unread else f"pod {key} could not be read: {unread}")
        line = reading.pod_line(engine, uid, key, engine.state.tasks.get(uid)) if known else None
        told = await self._explain(key, uid, obj)
        cards = [
            (piece, reading.card_view(engine, told["node"] or "", piece["uuid"])) for piece in (told["cards"] if told else ())
        ]  # fmt: skip
        use, hour, silent = None, [], ""
        if line is not None and line.node and (line.cards or _has_claims(obj)):
            use = await self.monitors.of_node(line.node)
            if not line.cards and key not in use.pods:
                use = None  # its claims may be of no cards
        if line is not None and use is not None and not use.unknown and _is_name(namespace) and _is_name(name):
            told_of, silent = await self.monitors.history(line.node, namespace, name)
            hour = charts(told_of) if told_of is not None else []
        return Shown("pod", f"Pod {key}", {
            "key": key, "obj": obj, "unread": unread, "line": line, "told": told, "cards": cards, "use": use,
            "hour": hour, "silent": silent,
            "cells": pod_cells(obj, now) if obj is not None else None, "groups": _grouped(told["misfits"]) if told else [],
            "events": await self._events(namespace, name, uid), "now": now, "conditions": _conditions(obj),
            "asks": _asks(obj), "nodes_named": NODES_NAMED,
        })  # fmt: skip

    async def _object(self, namespace: str, name: str) -> tuple[Json | None, str]:
        """The pod as the API server has it now, or why it is not known."""
        if not _is_name(namespace) or not _is_name(name):
            return None, ""
        try:
            return await self.following.cluster.get(PODS, name, namespace), ""
        except ApiError as error:
            return None, "" if error.code == 404 else str(error)

    async def _explain(self, key: str, uid: str, obj: Json | None) -> Any:
        """Return the JSON of `pumice explain`; None where nothing is known to answer from."""
        following, now = self.following, self.following.clock.now()
        if following.unsynced:
            return None  # of half a cluster anything might be said
        kept = self._explained.get(uid)
        if kept is not None and (kept[0] == following.version or now - kept[1] < 2.0):
            return msgspec.json.decode(kept[2])
        task, version = following.engine.state.tasks.get(uid), following.version
        found: bytes | None
        if task is not None and uid in following.engine.state.ledger.placements:
            found = placed(following.engine, key)
        else:
            pod = _as_pod(obj) or (None if task is None else task.pod)
            if pod is None:
                return None
            if pod.status.phase in ("Succeeded", "Failed") or uid in following.engine.state.ledger.placements:
                found = explained(following.engine, pod, now)
            else:
                found = await following.asked(lambda: explained(following.engine, pod, now))
        if found is None:
            return None
        self._explained.pop(uid, None)
        self._explained[uid] = version, following.clock.now(), found
        kept_bytes = sum(len(answer) for _, _, answer in self._explained.values())
        while len(self._explained) > ANSWERS_KEPT or kept_bytes > ANSWER_BYTES:
            kept_bytes -= len(self._explained.pop(next(iter(self._explained)))[2])
        return msgspec.json.decode(found)

    async def _events(self, namespace: str, name: str, uid: str) -> tuple[list[tuple[str, str, str, str, int]], str]:
        """(age, type, reason, message, times) of the pod's Events, the newest first, or why there are none."""
        if not uid or not _is_name(namespace) or not _is_name(name):
            return [], ""
        selector = f"involvedObject.name={name},involvedObject.namespace={namespace},involvedObject.uid={uid}"
        try:
            items = (await self.following.cluster.list(EVENTS, namespace, field_selector=selector)).get("items") or []
        except ApiError as error:
            return [], f"its Events could not be read: {error}"
        now = self.following.clock.now()
        rows = []
        for item in items:
            at = str(item.get("lastTimestamp") or item.get("eventTime") or item.get("firstTimestamp")
                     or (item.get("metadata") or {}).get("creationTimestamp") or "")  # fmt: skip
            rows.append((at, duration_since(at, now), str(item.get("type", "")), str(item.get("reason", "")),
                         str(item.get("message", "")), int(item.get("count") or 1)))  # fmt: skip
        return [row[1:] for row in sorted(rows, reverse=True)[:EVENTS_SHOWN]], ""

    # -- queues, jobs, all that wait ----------------------------------------------------------------------------

    async def _situation(self) -> Situation:
        if self.following.unsynced:
            raise Missing("this is not known before all lists are complete; the page loads itself then")
        found = await self.following.situation()
        if found is None:
            raise Missing("the cycle that would tell did not end in time; load the page again")
        return found

    async def queues(self, query: Query) -> Shown:
        found = await self._situation()
        return Shown("queues", "Queues", {"queues": found.queues, "at": found.at})

    async def queue(self, query: Query) -> Shown:
        name = query.get("name", "")
        found = await self._situation()
        queue = next((queue for queue in found.queues if queue.name == name), None)
        if queue is None:
            raise Missing(f"there is no queue {name}; there are: {', '.join(each.name for each in found.queues) or 'none'}")
        below = [each for each in found.queues if each.parent == name]
        return Shown("queue", f"Queue {name}", {"queue": queue, "below": below, "rows": _rows(queue), "at": found.at})

    async def jobs(self, query: Query) -> Shown:
        found = await self._situation()
        wanted = query.get("q", "")[:LONGEST_QUERY].strip().lower()
        groups = [group for group in found.groups if wanted in group.name.lower() or wanted in group.queue.lower()]
        groups.sort(key=lambda group: (not group.waiting, group.name))
        pages = Pages.of(query, len(groups), PODS_SHOWN)
        begin = (pages.number - 1) * PODS_SHOWN
        return Shown("jobs", "Jobs and gangs",
                     {"groups": groups[begin : begin + PODS_SHOWN], "pages": pages, "q": wanted, "at": found.at})  # fmt: skip

    async def job(self, query: Query) -> Shown:
        key = f"{query.get('namespace', 'default')}/{query.get('name', '')}"
        found = await self._situation()
        group = next((group for group in found.groups if group.name == key), None)
        job = self.following.engine.state.jobs.get(key)
        if group is None and job is None:
            raise Missing(f"there is no job or PodGroup {key}")
        waits = [each for each in found.waiting if each.job == key]
        members = sorted((task.name, task.status.label, task.node) for task in job.tasks.values()) if job is not None else []
        return Shown("job", f"Job {key}", {
            "key": key, "group": group, "queue": job.queue.name if job is not None else group.queue if group else "",
            "waits": waits, "members": members[:500], "more": max(0, len(members) - 500), "at": found.at,
            "now": self.following.clock.now(),
        })  # fmt: skip

    async def waiting(self, query: Query) -> Shown:
        found = await self._situation()
        pages = Pages.of(query, len(found.waiting), PODS_SHOWN)
        begin = (pages.number - 1) * PODS_SHOWN
        return Shown("waiting", "Who waits", {
            "rows": found.waiting[begin : begin + PODS_SHOWN], "pages": pages, "at": found.at, "now": found.at,
            "problems": sorted(found.problems.items())[:PODS_SHOWN],
        })  # fmt: skip

    # -- what changed, and where is what --------------------------------------------------------------------------

    async def changes(self, query: Query) -> Shown:
        return Shown("changes", "What changed", {"changes": self.following.changes.latest()[:200],
                                                 "now": self.following.clock.now()})  # fmt: skip

    async def search(self, query: Query) -> Shown:
        text = query.get("q", "")[:LONGEST_QUERY].strip()
        wanted, engine = text.lower(), self.following.engine
        if not wanted:
            return Shown("search", "Search", {"text": "", "most": FOUND_SHOWN, "nodes": [], "pods": [], "queues": [], "jobs": [],
                                              "cards": []})  # fmt: skip
        nodes = [line.name for line in self.summary().nodes if wanted in line.name.lower()]
        pods = [line.key for line in self.pod_lines() if wanted in line.key.lower()]
        queues = [name for name, queue in engine.state.queues.items() if wanted in name.lower() and queue.present]
        jobs = [key for key, job in engine.state.jobs.items() if wanted in key.lower() and job.group is not None]
        cards = [
            (book.name, card.index, card.uuid) for table in engine.state.ledger.device_tables.values()
            for book in table.nodes.values() for card in book.inventory.cards if wanted in card.uuid.lower()
        ]  # fmt: skip
        return Shown("search", f"Search: {text}", {
            "text": text, "most": FOUND_SHOWN, "nodes": nodes, "pods": pods, "queues": sorted(queues), "jobs": sorted(jobs),
            "cards": cards,
        })  # fmt: skip


def _as_pod(obj: Json | None) -> Pod | None:
    """None where there is no object, or one that no API server should show."""
    try:
        return None if obj is None else convert(Pod, obj)
    except msgspec.ValidationError:
        return None


def _matches(line: NodeLine, wanted: str) -> bool:
    return not wanted or wanted in line.name.lower() or wanted in line.models


def _is_name(text: str) -> bool:
    """Return whether it may stand in a path: names of Kubernetes' are such, and nothing else is asked for."""
    return 0 < len(text) <= 253 and text.isascii() and all(c.isalnum() or c in "-." for c in text) and text.strip(".") != ""


def _grouped(misfits: list[Json]) -> list[Json]:
    """Nodes that refuse alike together, most nodes first; of each group the cards of a few nodes."""
    together: dict[tuple[str, str, bool, tuple[tuple[str, int], ...]], list[Json]] = {}
    for misfit in misfits:
        cards = misfit.get("cards") or ()
        counted = tuple(sorted(Counter(str(card.get("detail", "")) for card in cards).items()))
        key = str(misfit.get("text", "")), str(misfit.get("detail", "")), bool(misfit.get("final")), counted
        together.setdefault(key, []).append(misfit)
    ordered = sorted(together.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {"text": text, "detail": detail, "final": final, "counted": counted, "nodes": [node["node"] for node in nodes],
         "examples": [node for node in nodes[:5] if node.get("cards")]}
        for (text, detail, final, counted), nodes in ordered[:GROUPS_SHOWN]
    ]  # fmt: skip


def _has_claims(obj: Json | None) -> bool:
    found = obj or {}
    return bool((found.get("spec") or {}).get("resourceClaims") or (found.get("status") or {}).get("extendedResourceClaimStatus"))


def _conditions(obj: Json | None) -> list[Json]:
    found = ((obj or {}).get("status") or {}).get("conditions") or []
    return [each for each in found if isinstance(each, dict)]


def _asks(obj: Json | None) -> list[tuple[str, str, str]]:
    """(container, resource, limit) as they stand in the object."""
    found = []
    for container in ((obj or {}).get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        for name, amount in sorted({**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items()):
            found.append((str(container.get("name", "")), str(name), str(amount)))
    return found


def _rows(queue: QueueView) -> list[tuple[str, dict[str, int]]]:
    """By resource what the queue has to say of it."""
    names = ("guarantee", "deserved", "capability", "used", "borrowed", "waiting")
    return [
        (resource, {name: vector[resource] for name in names if resource in (vector := getattr(queue, name))})
        for resource in queue.resources()
    ]  # fmt: skip


# -- The site of a cluster: its views, and what stands on each of its pages -----------------------------------------


NAVIGATION = (("", "Cluster"), ("pods", "Pods"), ("waiting", "Waiting"), ("queues", "Queues"), ("jobs", "Jobs"),
              ("changes", "Changes"))  # fmt: skip
OF_LISTS = {
    "nodes": "nodes and their cards are unknown", "pods": "who holds what is unknown", "queues": "queues are unknown",
    "podgroups": "jobs and gangs are unknown",
}  # fmt: skip
NOT_TOLD = "The scheduler's configuration is remarkable; who may list everything sees here why."
ABSENT = "404 "
"""Beginning of the answer for a kind that the cluster does not have; but for the lists above that is nothing to speak of."""


@dataclass(slots=True)
class ClusterSite:
    """The site of a cluster. ``limits``: what of the cluster whoever looks does not see. ``quotes``: he may read the
    configuration, of whose text remarks quote a part."""

    following: Following
    pages: Views
    limits: tuple[str, ...] = ()
    quotes: bool = True

    @property
    def views(self) -> Mapping[str, Callable[[Query], Awaitable[Shown]]]:
        return self.pages.views

    @property
    def version(self) -> int:
        return self.following.version

    def state(self) -> Mapping[str, Any]:
        following = self.following
        lacks = [
            (name, OF_LISTS.get(name, "answers are given without them"), answer)
            for name, answer in sorted(following.lacking.items())
            if name in OF_LISTS or not answer.startswith(ABSENT)
        ]  # fmt: skip
        remarks = following.remarks if self.quotes or not following.remarks else (NOT_TOLD,)
        return {
            "navigation": NAVIGATION, "place": "cluster", "silent_since": following.answered if following.silent else 0.0,
            "unsynced": sorted(following.unsynced), "lacks": lacks, "remarks": (*self.limits, *remarks),
            "figures_of": following.answered,
        }  # fmt: skip
