"""Carrying a plan of ``pumice defrag`` out: one eviction at a time, stopped where the world is not what the plan saw.

The scheduler decides where each pod goes. The cards that the plan keeps are cordoned while pods are moved, and open again at the
end, whatever happened. Nothing is undone: a pod that was moved stays where it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.ports.cluster import ApiError, Cluster
from pumice.simulation.moving import Answer, MoveView, Place
from pumice.wire import kinds, names

Json = dict[str, Any]
LOOK_EVERY = 1.0
"""Seconds between two looks at a pod that is awaited."""
PATIENCE = 300.0
"""Seconds that a moved pod is given to run, and the promised one to be bound."""
CONFLICTS = 5
"""Times that a node's annotation is written anew when somebody else wrote the node meanwhile."""


class Stopped(Exception):
    """The plan is not carried out any further."""


@dataclass(slots=True)
class Mover:
    """``again``: the plan for what is left, from the world as it is without the cards in that mapping being cordoned."""

    kube: Cluster
    again: Callable[[Mapping[str, frozenset[str]]], Awaitable[Answer]]
    sleep: Callable[[float], Awaitable[None]]
    say: Callable[[str], None] = print
    closed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The cards that are cordoned by us, by node."""

    async def carry_out(self, plan: Answer) -> str:
        """Return why it stopped; empty when the goal is met."""
        kept = {one.node: frozenset(one.uuids) for one in plan.kept}
        done = 0
        try:
            seen = {uid_of(pod) for pod in await self._pods()}
            for done, move in enumerate(plan.moves):
                if await self._reached(plan, done, seen):
                    break
                await self._cordon({**kept, move.source.node: kept.get(move.source.node, frozenset()) | set(move.leaves)})
                seen.add(await self._move(move, seen))
                self.say(f"{done + 1}/{len(plan.moves)} {move.pod}: {'evicted, it waits' if move.waits else 'runs again'}")
            done = len(plan.moves)
            await self._cordon({})
            await self._started(plan)
        except Stopped as stopped:
            return f"{stopped}; {done} of {len(plan.moves)} moves were carried out"
        except ApiError as error:
            return f"the API server refused: {error}; {done} of {len(plan.moves)} moves were carried out"
        finally:
            if any(self.closed.values()):
                await self._cordon({})
        return ""

    # -- one step -------------------------------------------------------------------------------------------------

    async def _reached(self, plan: Answer, done: int, seen: set[str]) -> bool:
        """Return whether no more need be moved. Look again: the pods of the plan are what and where they were, nobody
        came onto its cards, and the engine still finds that the rest leads to the goal. Raises Stopped."""
        pods = {uid_of(pod): pod for pod in await self._pods()}
        for move in plan.moves[done:]:
            pod = pods.get(move.uid)
            if pod is None or not _at(pod, move.source) or pod["metadata"].get("deletionTimestamp"):
                raise Stopped(f"{move.pod} is not where the plan saw it")
        for start in plan.starts:
            if start.uid not in pods or pods[start.uid]["spec"].get("nodeName"):
                raise Stopped(f"{start.pod} does not wait any more")
        cards = {uuid for one in plan.kept for uuid in one.uuids} | {c.uuid for m in plan.moves[done:] for c in m.target.cards}
        for uid, pod in pods.items():
            if uid not in seen and pod["spec"].get("nodeName") and cards.intersection(_allocated(pod, cards)):
                raise Stopped(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} has come onto a card of the plan")
        left = len(plan.moves) - done
        found = await self.again(self.closed)
        if found.reached:
            return True
        if not found.moves or len(found.moves) > left:
            raise Stopped(f"looked at again, {left} moves do not lead there: {found.summary}")
        return False

    async def _move(self, move: MoveView, seen: set[str]) -> str:
        """Evict a pod and wait for the one that its controller makes in its place. Returns the uid of that one."""
        namespace, _, name = move.pod.partition("/")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
                    "deleteOptions": {"preconditions": {"uid": move.uid}}}  # fmt: skip
        try:
            await self.kube.create(kinds.PODS, eviction, namespace, subresource="eviction", name=name)
        except ApiError as error:
            raise Stopped(f"the eviction of {move.pod} was refused: {error.message}") from error
        waited = 0.0
        while waited <= PATIENCE:
            pods = {uid_of(pod): pod for pod in await self._pods(namespace)}
            fresh = next((pod for uid, pod in pods.items() if uid not in seen and move.owner in _owners(pod)), None)
            if fresh is not None and fresh["spec"].get("nodeName") and not move.waits and not _at(fresh, move.target):
                raise Stopped(f"{fresh['metadata']['name']}, made anew for {move.pod}, is elsewhere than planned")
            running = fresh is not None and fresh.get("status", {}).get("phase") == "Running"
            if fresh is not None and move.uid not in pods and (running or move.waits):
                return uid_of(fresh)
            await self.sleep(LOOK_EVERY)
            waited += LOOK_EVERY
        raise Stopped(f"{move.pod} does not run again after {PATIENCE:.0f} s")

    async def _started(self, plan: Answer) -> None:
        waited = 0.0
        while waited <= PATIENCE:
            pods = {uid_of(pod): pod for pod in await self._pods()}
            if all(uid in pods and pods[uid]["spec"].get("nodeName") for uid in (start.uid for start in plan.starts)):
                return
            await self.sleep(LOOK_EVERY)
            waited += LOOK_EVERY
        raise Stopped(f"{plan.goal} does not start {PATIENCE:.0f} s after the last move")

    async def _pods(self, namespace: str = "") -> list[Json]:
        return list((await self.kube.list(kinds.PODS, namespace)).get("items") or ())

    # -- cordoned cards -------------------------------------------------------------------------------------------

    async def _cordon(self, cards: Mapping[str, frozenset[str]]) -> None:
        """Cordon these cards, and open those that we cordoned before; what others cordoned stays."""
        for node in sorted({*self.closed, *cards}):
            wanted, ours = cards.get(node, frozenset()), self.closed.get(node, frozenset())
            if wanted != ours:
                self.closed[node] = await self._write(node, wanted, ours)

    async def _write(self, name: str, wanted: frozenset[str], ours: frozenset[str]) -> frozenset[str]:
        """Returns those that are cordoned by us now."""
        for again in range(CONFLICTS):
            node = await self.kube.get(kinds.NODES, name)
            text = (node["metadata"].get("annotations") or {}).get(names.CORDONED_CARDS, "")
            theirs = [word for word in (part.strip() for part in text.split(",")) if word and word not in ours]
            more = wanted - set(theirs)
            notes = {names.CORDONED_CARDS: ",".join([*theirs, *sorted(more)]) or None}
            body = {"metadata": {"annotations": notes, "resourceVersion": node["metadata"].get("resourceVersion")}}
            try:
                await self.kube.patch(kinds.NODES, name, body)
            except ApiError as error:
                if error.code != 409 or again == CONFLICTS - 1:
                    raise
            else:
                return frozenset(more)
        return ours


def uid_of(pod: Json) -> str:
    return str(pod["metadata"].get("uid", ""))


def _owners(pod: Json) -> Iterator[str]:
    return (str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller"))


def _at(pod: Json, place: Place) -> bool:
    """Return whether a pod is on that node, with these cards."""
    cards = {allocated.uuid for allocated in place.cards}
    return pod["spec"].get("nodeName") == place.node and cards == _allocated(pod, cards)


def _allocated(pod: Json, cards: set[str]) -> set[str]:
    """Return those of the cards that its annotations name."""
    notes = " ".join((pod["metadata"].get("annotations") or {}).values())
    return {uuid for uuid in cards if uuid in notes}
