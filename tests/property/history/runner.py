"""Draw, play, keep and shrink histories."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kit.scheduler_confs import conf, sharing
from tests.property.history import befalls, claims, pods, world  # noqa: F401  (they register their kinds)
from tests.property.history.checker import Complaint, told
from tests.property.history.door import HIERARCHY, MAKES_ROOM, VGPU_ENABLE, Door
from tests.property.history.registry import KINDS, Op, View

from pumice_lab.first_objects import SCHEDULER_CONF

STEPS = 30
LAST = (
    ("a node comes", "a node goes before its pods", "a node comes anew under its name"),
    ("a pod comes", "a queue comes anew under its name", "a PodGroup comes anew under its name",
     "a PodGroup wants fewer or more"),
)  # fmt: skip
"""Kinds of steps shortly before that, one of each in one moment: pods that were told how many nodes refuse are tried anew as
nodes come and go."""
OPEN: tuple[str, ...] = ()
"""Kinds of steps and traits of pods under which some promise is not held yet."""
VOTES = SCHEDULER_CONF.replace("    enablePreemptable: false\n", "")
"""Where plugin gang spares whoever would be missed, as in Volcano's built-in configuration: only what gangs have beyond their
minimum goes, and a pod of its own is a gang of one."""


OWN_REPORTS = "configurations:\n- name: init-params\n  arguments: {useClusterInfoManager: \"false\"}\n"
"""The scheduler reads what each node's plugin reports, without a component that gathers it."""
MOVING = "configurations:\n- name: defrag\n  arguments: {pumice.interval: 1s, pumice.min-age: 1s, pumice.max-moves: 3}\n"


def _making_room(conf: str) -> str:
    """Where gangs may fall as a whole for reclaim as well."""
    return conf.replace("allocate, backfill", MAKES_ROOM[0]).replace("name: gang\n", "name: gang\n    enableReclaimable: false\n")


def _without(plugin: str) -> str:
    return re.sub(rf"  - name: {plugin}\n(    .*\n)*", "", SCHEDULER_CONF)


CONFS = {
    "new cluster": SCHEDULER_CONF,
    "no gangs": _without("gang"),
    "no shares": _without("proportion"),
    "capacity": SCHEDULER_CONF.replace("name: proportion", "name: capacity"),
    "tree of queues": SCHEDULER_CONF.replace("name: proportion", f"name: capacity\n    {HIERARCHY}"),
    "spread": SCHEDULER_CONF.replace("SchedulePolicy: lookahead", "SchedulePolicy: spread"),
    "legacy parts of cards": SCHEDULER_CONF.replace(VGPU_ENABLE, "deviceshare.GPUSharingEnable: true"),
    "legacy whole cards": SCHEDULER_CONF.replace(VGPU_ENABLE, "deviceshare.GPUNumberEnable: true"),
    "making room for single pods": SCHEDULER_CONF.replace("allocate, backfill", MAKES_ROOM[0]),
    "making room for gangs": SCHEDULER_CONF.replace("allocate, backfill", MAKES_ROOM[1]),
    "making room of spare pods": VOTES.replace("allocate, backfill", MAKES_ROOM[0]),
    "making room": _making_room(_without("drf")),
    "reclaim by capacity": _making_room(SCHEDULER_CONF.replace("name: proportion", "name: capacity")),
    "reclaim in a tree": _making_room(SCHEDULER_CONF.replace("name: proportion", f"name: capacity\n    {HIERARCHY}")),
    "laid out for the most": SCHEDULER_CONF.replace(VGPU_ENABLE, f"{VGPU_ENABLE}\n      pumice.PlanPendingSet: fullest"),
    "one by one": SCHEDULER_CONF.replace(VGPU_ENABLE, f"{VGPU_ENABLE}\n      pumice.PlanPendingSet: none"),
    "filters": conf("gang", "predicates", sharing("VGPU")),
}  # fmt: skip
APART = {
    "making room by importance": _without("proportion").replace("allocate, backfill", "allocate, preempt, backfill"),
    "reclaim between queues": _making_room(SCHEDULER_CONF.replace("name: proportion", "name: capacity")).replace("preempt, ", ""),
    "held for gangs": SCHEDULER_CONF.replace("name: gang\n", "name: gang\n    arguments:\n      pumice.gangReservation: 20s\n"),
    "moved by the scheduler": MOVING + SCHEDULER_CONF.replace("allocate, backfill", "allocate, backfill, defrag").replace(
        "SchedulePolicy: lookahead", "SchedulePolicy: spread"),
    "cards by claim as well": _without("proportion") + "# cards by claim as well\n",
    "beside upstream's plugin": _without("proportion").replace("allocate, backfill", "allocate, preempt, backfill").replace(
        VGPU_ENABLE, f"{VGPU_ENABLE}\n      deviceshare.NodeLockEnable: true"),
    "cards shared by MPS": _without("proportion") + "# cards shared by MPS\n",
    "NPUs cut on demand": OWN_REPORTS + _without("proportion").replace(
        VGPU_ENABLE, f"{VGPU_ENABLE}\n      deviceshare.AscendMindClusterVNPUEnable: true"),
    "NPUs in HAMi's mode": _without("proportion").replace(
        VGPU_ENABLE, f"{VGPU_ENABLE}\n      deviceshare.AscendHAMiVNPUEnable: true"),
}
"""Configurations that are played only where they are asked for."""

Step = tuple[str, list[Op]]
DoorMaker = Callable[[str, Random], Door]
Drive = Callable[[Coroutine[Any, Any, Any]], Any]


@dataclass(frozen=True, slots=True)
class History:
    """The played history and its result: the complaints of the step at which it ended."""

    seed: int
    conf: str
    steps: tuple[Step, ...]
    complaints: tuple[Complaint, ...] = ()

    def text(self) -> str:
        """To read, to keep (``History.read``), and to play again."""
        lines = [f"history of seed {self.seed}, configuration {self.conf!r}, {len(self.steps)} steps"]
        lines += [f"  {name}: {json.dumps(ops)}" for name, ops in self.steps]
        return "\n".join([*lines, *(f"broken: {complaint}" for complaint in self.complaints)])

    def dump(self) -> str:
        return json.dumps({"seed": self.seed, "conf": self.conf, "steps": self.steps}, indent=1)

    @classmethod
    def read(cls, text: str) -> History:
        found = json.loads(text)
        return cls(found["seed"], found["conf"], tuple((name, ops) for name, ops in found["steps"]))


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine that never waits for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def draw(
    seed: int, door: DoorMaker, *, steps: int = STEPS, without: Iterable[str] = (), drive: Drive = at_once, conf: str = ""
) -> History:
    """Play a new history of that seed until it ends or breaks something; under one configuration, where it is named."""
    return drive(_draw(seed, door, steps, frozenset(without), conf))  # type: ignore[no-any-return]


async def _draw(seed: int, make: DoorMaker, steps: int, without: frozenset[str], conf: str) -> History:
    rng = Random(seed)
    conf = conf or rng.choice(sorted(CONFS))
    door = make({**CONFS, **APART}[conf], Random(seed))
    kinds = [k for name, k in KINDS.items() if door.name in k.doors and name not in without
             and (door.with_claims or k.draw.__module__ != claims.__name__)]  # fmt: skip
    weights = [k.weight for k in kinds]
    played: list[Step] = []
    view = View(door.store, without, door.checker.sharing.resources)
    try:
        begun = door.beginning(view, rng)
        if door.with_claims and rng.random() < 0.6:
            nodes = [op["object"]["metadata"]["name"] for op in begun if op["object"]["kind"] == "Node"]
            begun += claims.beginning(nodes, rng)
        await _step(door, played, ("the beginning", begun))
        await door.begin()
        while len(played) <= steps and not door.checker.complaints:
            chosen = rng.choices(kinds, weights)[0]
            ops = chosen.draw(view, rng)
            if ops is not None:
                ops = door.amid(ops, view, rng)
                if rng.random() < 0.5:
                    ops = [*ops, {"do": "wait", "seconds": rng.choice(door.pauses)}]
                await _step(door, played, (chosen.name, ops))
        if not door.checker.complaints:
            await _step(door, played, ("all is heard", [{"do": "relist"}, {"do": "wait", "seconds": rng.choice(door.pauses)}]))
        for _ in range(2 if all(door.name in KINDS[name].doors for each in LAST for name in each) else 0):
            if not door.checker.complaints:
                names = [rng.choice(each) for each in LAST]
                ops = [op for name in names for op in KINDS[name].draw(view, rng) or []]
                await _step(door, played, (" and ".join(names), [*ops, {"do": "wait", "seconds": rng.choice(door.pauses)}]))
        if not door.checker.complaints:
            await _step(door, played, ("long nothing happens", [{"do": "wait", "seconds": door.quiet}]))
    finally:
        await door.end()
    return History(seed, conf, tuple(played), tuple(door.checker.complaints))


async def _step(door: Door, played: list[Step], step: Step) -> None:
    """One step; whatever it raises is a complaint, too."""
    played.append(step)
    try:
        for op in step[1]:
            await door.perform(op)
        await door.look()
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError):
            raise
        door.checker.complain("crash", told(error))


def replay(history: History, door: DoorMaker, *, drive: Drive = at_once) -> History:
    """Play the steps again as they are written."""
    return drive(_replay(history, door))  # type: ignore[no-any-return]


async def _replay(history: History, make: DoorMaker) -> History:
    door = make({**CONFS, **APART}[history.conf], Random(history.seed))
    played: list[Step] = []
    try:
        for number, step in enumerate(history.steps):
            await _step(door, played, step)
            if not number:
                await door.begin()
            if door.checker.complaints:
                break
    finally:
        await door.end()
    return replace(history, steps=tuple(played), complaints=tuple(door.checker.complaints))


def shrunk(history: History, door: DoorMaker, *, drive: Drive = at_once) -> History:
    """A history with fewer steps, and fewer operations in them, that breaks the same promise."""
    broken = {complaint.sort for complaint in history.complaints}

    def breaks(steps: list[Step]) -> History | None:
        found = replay(replace(history, steps=tuple(steps)), door, drive=drive)
        return found if broken & {complaint.sort for complaint in found.complaints} else None

    best = breaks(list(history.steps))
    if best is None:
        return history  # not by its steps alone
    size = len(best.steps) // 2
    while size:
        at = len(best.steps) - size
        while at >= 0:
            less = breaks([*best.steps[:at], *best.steps[at + size :]])
            best = less or best
            at -= size
        size //= 2
    for number in range(len(best.steps) - 1, -1, -1):
        for at in range(len(best.steps[number][1]) - 1, -1, -1):
            name, ops = best.steps[number]
            less = breaks([*best.steps[:number], (name, [*ops[:at], *ops[at + 1 :]]), *best.steps[number + 1 :]])
            best = less if less is not None and len(less.steps) == len(best.steps) else best
    return best
