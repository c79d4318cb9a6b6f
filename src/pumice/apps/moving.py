"""Carrying a plan of ``pumice defrag`` out: one eviction at a time, stopped where the world is not what the plan saw.

The scheduler decides where each pod goes. The nodes' annotations say meanwhile which cards take nobody, and for whom places are
held, each until a time; at the end they say nothing more, whatever happened. What a run that was killed left there ends by
itself, or with the next run for the same goal. Nothing is undone: a pod that was moved stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.ports.cluster import ApiError, Cluster
from pumice.simulation.moving import (
    HELD,
    Answer,
    MoveView,
    Outlook,
    Place,
    Wanted,
    by_node,
    held_at_the_end,
    held_during,
)
from pumice.wire import kinds, names
from pumice.wire.held_places import HeldPlace, parse_held_for, parse_held_places, render_held_for, render_held_places
from pumice.wire.times import moment, stamp

Json = dict[str, Any]
LOOK_EVERY = 1.0
"""Seconds between two looks at a pod that is awaited."""
PATIENCE = 300.0
"""Seconds that a moved pod is given to run, and the promised one to be bound."""
CONFLICTS = 5
"""Times that a node's annotation is written anew when somebody else wrote the node meanwhile."""
UNCLEAR = frozenset({0, 408, 500, 502, 503, 504})
"""Answers after which what was asked for may have been done all the same."""
DOUBTS = 10
"""Looks at a pod of which it is not known whether it was evicted."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
"""Separator of the UUIDs of cards in annotations."""


class Stopped(Exception):
    """The plan is not carried out any further."""


@dataclass(slots=True)
class Mover:
    """The execution of a plan of moves. ``again``: a look at the rest of the plan, from the world as it is without what we
    hold, after so many moves that made pods with these uids. ``now``: the time of day. ``run``: a name that no other run has."""

    kube: Cluster
    again: Callable[[int, Sequence[str]], Awaitable[Outlook]]
    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], float]
    say: Callable[[str], None] = print
    nodes: set[str] = field(default_factory=set)
    """Those on which we hold something, or may."""
    run: str = ""
    earlier: frozenset[str] = frozenset()
    """Runs for the same goal that are over, or whose places this one takes."""

    async def carry_out(self, plan: Answer) -> str:
        """Return why it stopped; empty when the goal is met."""
        done: list[str] = []
        why = ""
        try:
            await self._steps(plan, done)
        except Stopped as stopped:
            why = f"{stopped}; {len(done)} of {len(plan.moves)} moves were carried out"
        except ApiError as error:
            why = f"the API server refused: {error}; {len(done)} of {len(plan.moves)} moves were carried out"
        finally:
            left = await self.open(plan.goal)
            if left:
                self.say(left)
        return why or left

    async def open(self, goal: str) -> str:
        """Hold nothing any more. Returns what stays held, and how people end that; empty: nothing."""
        left = {}
        for node in sorted(self.nodes):
            try:
                await self._write(node, goal, ())
            except Stopped:  # what is held there is another run's
                self.nodes.discard(node)
            except ApiError as error:
                if error.code != 404:
                    left[node] = str(error)
        return "; ".join(
            f"places on {node} stay held for {HELD / 60:.0f} minutes ({why}): the same command again frees them, "
            f"or kubectl annotate node {node} {names.HELD_PLACES}- {names.HELD_FOR_MOVES}-"
            for node, why in left.items()
        )

    async def _steps(self, plan: Answer, done: list[str]) -> None:
        """``done``: uids of the pods that were made anew, filled as it goes."""
        seen = {uid_of(pod) for pod in await self._pods()}
        for step, move in enumerate(plan.moves):
            if await self._reached(plan, step, seen, done):
                break
            await self._hold(plan.goal, held_during(plan, step))
            done.append(await self._move(move, seen))
            seen.add(done[-1])
            self.say(f"{step + 1}/{len(plan.moves)} {move.pod}: {'evicted, it waits' if move.waits else 'runs again'}")
        await self._hold(plan.goal, held_at_the_end(plan, len(done)))
        await self._started(plan)

    # -- one step -------------------------------------------------------------------------------------------------

    async def _reached(self, plan: Answer, step: int, seen: set[str], done: Sequence[str]) -> bool:
        """Return whether no more need be moved. Look again: the pods of the plan are what and where they were, nobody
        came onto its cards, and the engine still finds that the rest leads to the goal. Raises Stopped."""
        pods = {uid_of(pod): pod for pod in await self._pods()}
        for move in plan.moves[step:]:
            pod = pods.get(move.uid)
            if pod is None or not _at(pod, move.source) or pod["metadata"].get("deletionTimestamp"):
                raise Stopped(f"{move.pod} is not where the plan saw it")
        for start in plan.starts:
            if start.uid not in pods or pods[start.uid]["spec"].get("nodeName"):
                raise Stopped(f"{start.pod} does not wait any more")
        cards = {uuid for one in plan.kept for uuid in one.uuids} | {c.uuid for m in plan.moves[step:] for c in m.target.cards}
        for uid, pod in pods.items():
            if uid not in seen and pod["spec"].get("nodeName") and _held(pod, cards):
                raise Stopped(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} has come onto a card of the plan")
        found = await self.again(step, done)
        if found.why:
            raise Stopped(f"looked at again, {len(plan.moves) - step} moves do not lead there: {found.why}")
        return found.reached

    async def _move(self, move: MoveView, seen: set[str]) -> str:
        """Evict a pod and wait for the one that its controller makes in its place. Returns the uid of that one."""
        await self._evict(move)
        waited = 0.0
        while waited <= PATIENCE:
            pods = {uid_of(pod): pod for pod in await self._patiently(move.pod.partition("/")[0])}
            fresh = next((pod for uid, pod in pods.items() if uid not in seen and move.owner in _owners(pod)), None)
            if fresh is not None and fresh["spec"].get("nodeName") and not move.waits and not _at(fresh, move.target):
                raise Stopped(f"{fresh['metadata']['name']}, made anew for {move.pod}, is elsewhere than planned")
            running = fresh is not None and fresh.get("status", {}).get("phase") == "Running"
            if fresh is not None and move.uid not in pods and (running or move.waits):
                return uid_of(fresh)
            await self.sleep(LOOK_EVERY)
            waited += LOOK_EVERY
        raise Stopped(f"{move.pod} was evicted and does not run again after {PATIENCE:.0f} s")

    async def _evict(self, move: MoveView) -> None:
        """Raises Stopped where it was refused. An answer that was lost says nothing: then the pod is looked at."""
        namespace, _, name = move.pod.partition("/")
        eviction = kinds.eviction(namespace, name, move.uid)
        try:
            await self.kube.create(kinds.PODS, eviction, namespace, subresource="eviction", name=name)
        except ApiError as error:
            if error.code not in UNCLEAR:
                raise Stopped(f"the eviction of {move.pod} was refused: {error.message}") from error
            for _ in range(DOUBTS):
                pods = {uid_of(pod): pod for pod in await self._patiently(namespace, [{"metadata": {"uid": move.uid}}])}
                if move.uid not in pods or pods[move.uid]["metadata"].get("deletionTimestamp"):
                    return
                await self.sleep(LOOK_EVERY)
            raise Stopped(f"the eviction of {move.pod} was not answered, and the pod stays: {error.message}") from error

    async def _started(self, plan: Answer) -> None:
        waited = 0.0
        while waited <= PATIENCE:
            pods = {uid_of(pod): pod for pod in await self._patiently()}
            if all(uid in pods and pods[uid]["spec"].get("nodeName") for uid in (start.uid for start in plan.starts)):
                return
            await self.sleep(LOOK_EVERY)
            waited += LOOK_EVERY
        raise Stopped(f"{plan.goal} does not start {PATIENCE:.0f} s after the last move")

    async def _pods(self, namespace: str = "") -> list[Json]:
        return list((await self.kube.list(kinds.PODS, namespace)).get("items") or ())

    async def _patiently(self, namespace: str = "", unknown: Iterable[Json] = ()) -> list[Json]:
        """The same while something is awaited: an API server that does not answer for a moment ends nothing. ``unknown``: what to
        take for the pods then."""
        try:
            return await self._pods(namespace)
        except ApiError as error:
            if error.code not in UNCLEAR | {429}:
                raise
            return list(unknown)

    # -- places that are held -------------------------------------------------------------------------------------

    async def _hold(self, goal: str, places: Iterable[Wanted]) -> None:
        """Hold these places from now on, and no others."""
        found = by_node(places, stamp(self.now() + HELD))
        for node in sorted({*self.nodes, *found}):
            await self._write(node, goal, found.get(node, ()))

    async def _write(self, name: str, goal: str, places: tuple[HeldPlace, ...]) -> None:
        """Raises Stopped where another run holds places on the node."""
        for again in range(CONFLICTS):
            node = await self.kube.get(kinds.NODES, name)
            other, run = held_for(node["metadata"].get("annotations") or {}, self.now())
            if other and (other != goal or run not in ("", self.run, *self.earlier)):
                raise Stopped(f"places on {name} are held for {other} by another pumice defrag apply")
            notes = {names.HELD_PLACES: render_held_places(places) if places else None,
                     names.HELD_FOR_MOVES: render_held_for(goal, self.run) if places else None}  # fmt: skip
            body = {"metadata": {"annotations": notes, "resourceVersion": node["metadata"].get("resourceVersion")}}
            self.nodes.add(name)  # before it is written: the answer may be lost
            try:
                await self.kube.patch(kinds.NODES, name, body)
            except ApiError as error:
                if error.code != 409 or again == CONFLICTS - 1:
                    raise
            else:
                if not places:
                    self.nodes.discard(name)
                return


def held_for(annotations: Mapping[str, str], now: float) -> tuple[str, str]:
    """Return the goal for which a run holds places on a node, and the run; empty where none does, or its time is over."""
    places = parse_held_places(annotations.get(names.HELD_PLACES, ""))
    if isinstance(places, str) or not any((moment(place.until) or 0.0) > now for place in places):
        return "", ""
    return parse_held_for(annotations.get(names.HELD_FOR_MOVES, ""))


def uid_of(pod: Json) -> str:
    return str(pod["metadata"].get("uid", ""))


def _owners(pod: Json) -> Iterator[str]:
    return (str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller"))


def _at(pod: Json, place: Place) -> bool:
    """Return whether a pod is on that node, with these cards."""
    cards = {held.uuid for held in place.cards}
    return pod["spec"].get("nodeName") == place.node and cards == _held(pod, cards)


def _held(pod: Json, cards: set[str]) -> set[str]:
    """Return those of the cards that its annotations name, as whole words: card 1 is no part of card 10."""
    notes = " ".join((pod["metadata"].get("annotations") or {}).values())
    return cards.intersection(_NO_NAME.split(notes))
