"""tdm: nodes that are lent for some hours of the day take pods that may be taken away again (Volcano pkg/scheduler/plugins).

A node is revocable by the label volcano.sh/revocable-zone; the hours of a zone are an argument of the plugin, in the scheduler's
own time zone. Outside them the pods there that may be revoked go, a few of each job at a time; the action shuffle does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import (
    JobOrder,
    Preemptable,
    Session,
    Spared,
    TaskNodeOrder,
    TaskPredicate,
    Verdict,
    VictimTasks,
)
from pumice.scheduler.state.jobs import Job, Status, Task
from pumice.scheduler.state.state import State
from pumice.wire.cron import Window, parse_window
from pumice.wire.names import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, REVOCABLE_ZONE
from pumice.wire.objects import Requirement
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import Arguments

ZONE = "tdm.revocable-zone."
PERIOD = "tdm.evict.period"
SCORE = 100.0
AT_A_TIME = 1
"""Pods of a job that go in one period, where it names no budget."""


class Tdm(JobOrder, TaskPredicate, TaskNodeOrder, Preemptable, VictimTasks):
    name = "tdm"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._windows = _windows(arguments)
        self._period = _period(arguments)
        self._state: State | None = None
        self._open: tuple[str, ...] | None = None
        """Zones whose hours these are."""
        self._now, self._next = 0.0, 0.0
        self._late = False
        """Some pods are on lent nodes outside their hours."""

    def open(self, session: Session) -> None:
        self._state, self._now = session.state, session.now
        clock = time.localtime(session.wall)
        second = clock.tm_hour * 3600 + clock.tm_min * 60 + clock.tm_sec + session.wall % 1
        opened = tuple(zone for zone, window in self._windows.items() if window.holds(second))
        if opened != self._open:
            if self._open is not None:
                _offer(session.state, set(opened) - set(self._open))
            self._open, self._next = opened, session.now
        if self._windows:
            switch = session.now + min(each.until_switch(second) for each in self._windows.values())
            session.state.scheduling_queue.cycle_at(min(switch, max(self._next, session.now)) if self._late else switch)

    # -- who goes where -------------------------------------------------------------------------------------------

    def bounds(self, state: State, task: Task) -> Iterator[Verdict]:
        revocable, lent = self._nodes(state)
        yield Verdict(revocable & ~lent, "node(s) of a revocable zone outside its hours")
        if not task.yielding.revocable:
            yield Verdict(lent, "node(s) of a revocable zone, and the pod may not be revoked")

    def task_scores(self, state: State, task: Task) -> NDArray[np.float64] | None:
        return np.where(self._nodes(state)[1], SCORE, 0.0) if task.yielding.revocable else None

    def job_order_key(self, job: Job) -> bool:
        """Jobs that may be revoked come after all others."""
        return _revocable(job)

    def _nodes(self, state: State) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Those of any zone, and those of a zone whose hours these are."""
        labels, most = state.ledger.terms.labels, state.ledger.table.capacity
        revocable = labels.matches(Requirement(REVOCABLE_ZONE, "Exists", ()))[:most]
        if not self._open:
            return revocable, np.zeros(len(revocable), bool)
        return revocable, labels.matches(Requirement(REVOCABLE_ZONE, "In", self._open))[:most]

    # -- who goes -------------------------------------------------------------------------------------------------

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """A pod that may be revoked makes nobody go; who may be revoked goes, as far as its job's budget lets it."""
        if preemptor.yielding.revocable:
            return {task.uid: f"pod {preemptor.name} may be revoked itself" for task in victims}
        stay, gone = {}, dict[Job, int]()
        for task in victims:
            if not task.yielding.revocable:
                stay[task.uid] = "it does not say that it may be revoked"
            elif self._zone(task):
                stay[task.uid] = "it is on a revocable node"
            elif task.job is not None and gone.get(task.job, 0) >= _may_go(task.job):
                stay[task.uid] = f"job {task.job.name} gives no more pods at a time"
            elif task.job is not None:
                gone[task.job] = gone.get(task.job, 0) + 1
        return stay

    def victims(self, running: Sequence[Task]) -> Mapping[str, str]:
        assert self._state is not None
        if self._open is None or self._now < self._next:
            return {}
        late = [task for task in running if task.yielding.revocable and (zone := self._zone(task)) and zone not in self._open]
        found: dict[str, str] = {}
        gone: dict[Job, int] = {}
        for task in late:
            if task.job is not None and gone.get(task.job, 0) < _may_go(task.job):
                gone[task.job] = gone.get(task.job, 0) + 1
                found[task.uid] = f"the hours of revocable zone {self._zone(task)} are over"
        self._late = bool(late)
        if late:
            self._next = self._now + self._period
            self._state.scheduling_queue.cycle_at(self._next)
        return found

    def _zone(self, task: Task) -> str:
        table = self._state.ledger.table if self._state is not None else None
        facts = table.facts[table.row_of[task.node]] if table is not None and task.node in table.row_of else None
        return facts.labels.get(REVOCABLE_ZONE, "") if facts is not None else ""


def _offer(state: State, zones: set[str]) -> None:
    """Their hours have begun: whoever waits for room may look at them."""
    table = state.ledger.table
    for row in table.live_rows().tolist():
        facts = table.facts[row]
        if facts is not None and facts.labels.get(REVOCABLE_ZONE) in zones:
            table.touch(row, gain=True)


def _revocable(job: Job) -> bool:
    return any(task.yielding.revocable for task in job.tasks.values())


def _may_go(job: Job) -> int:
    """Return how many of its pods may go at a time, by its budget."""
    notes = job.group.metadata.annotations if job.group is not None else {}
    running, ended = job.counts[Status.RUNNING], job.count(Status.SUCCEEDED)
    if (most := _part(notes.get(JDB_MAX_UNAVAILABLE, ""), len(job.tasks))) is not None:
        return max(0, most - (len(job.tasks) - ended - running))
    if (least := _part(notes.get(JDB_MIN_AVAILABLE, ""), len(job.tasks))) is not None:
        return max(0, running - least)
    return AT_A_TIME


def _part(text: str, whole: int) -> int | None:
    """A number of pods, or a percentage of them, rounded up."""
    number = text.removesuffix("%")
    if not number.isdecimal():
        return None
    return -(-whole * int(number) // 100) if text.endswith("%") else int(number)


def _windows(arguments: Arguments) -> dict[str, Window]:
    found = {}
    for key in arguments:
        if key.startswith(ZONE):
            try:
                found[key.removeprefix(ZONE)] = parse_window(arguments.text(key))
            except ValueError as error:
                arguments.complaints.append(f"plugin tdm: {key}: {error}; the zone is never lent")
    return found


def _period(arguments: Arguments) -> float:
    text = arguments.text(PERIOD, "1m")
    try:
        return parse_duration(text) or 60.0
    except ValueError as error:
        arguments.complaints.append(f"plugin tdm: {PERIOD}: {error}; 1m is used")
        return 60.0
