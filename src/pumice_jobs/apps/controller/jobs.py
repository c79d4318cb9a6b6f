"""The controller of Volcano's Jobs: what the watches say goes to the pure rules, and what they want is done.

One Job is in one hand at a time. Its requests are answered first, each action's status is written before its pods go, and then
the rules are asked until nothing is missing. Counts are written a moment later than phases: one write tells of many pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pumice.apps.service.watches import object_of
from pumice.effects.performer import Performer
from pumice.effects.vocabulary import Create, Requeue
from pumice.effects.work_queue import WorkQueue
from pumice.metrics.text import Histogram
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire import volcano
from pumice.wire.batch import COMPLETED, FAILED, Job, JobStatus
from pumice.wire.volcano import Command, PriorityClass
from pumice_jobs.apps.controller.ended_groups import EndedGroups
from pumice_jobs.apps.controller.job_effects import Effects, GroupNotTaken, NotTaken, Reporting
from pumice_jobs.apps.controller.job_store import JobStore, Known
from pumice_jobs.controllers.job.effects import DropGroup, Effect, WriteStatus, event
from pumice_jobs.controllers.job.phases import ACTIONS, TARGETED, TERMINATE
from pumice_jobs.controllers.job.reconcile import BURST, act, decide, only_counts, waits_for_nothing
from pumice_jobs.controllers.job.requests import COMMAND, Delayed, Request, answer, cancels, missed
from pumice_jobs.controllers.job.status import is_waiting
from pumice_jobs.metrics.controller import pod_creation_latency

log = logging.getLogger("pumice.controller")

KIND = "job"
PHASE = 0.5
"""Seconds for which the phase of a Job that only lives is not written: where more of its pods start at once, one write tells of
all. No phase is left out."""
COUNTS = 2.0
"""Seconds for which a status waits that only counts pods."""
PUT_OFF = 30.0
"""Seconds for which such a status waits longer, at most, while the Job comes along or there are groups and pods to make."""
WAITING = 120.0
"""And one that only counts pods none of which runs: that its pods wait is not what anybody waits to hear."""
ROUNDS = 50
"""Most runs of the rules in a row for one Job. Each answer brings the Job nearer to rest; this bounds what nobody thought of."""
GIVE_UP = 15
"""Refusals in a row after which a Job is terminated, as upstream (max-requeue-num)."""


@dataclass(slots=True)
class Jobs:
    """The controller of Jobs. ``keys`` makes a pair of SSH keys; ``commanded`` is told the key of a Job and the uid of a
    Command that it has followed; ``takes_groups`` says it of a queue."""

    cluster: Cluster
    clock: Clock
    performer: Performer
    work: WorkQueue
    keys: Callable[[], tuple[str, str]]
    commanded: Callable[[str, str], None]
    takes_groups: Callable[[str], bool]
    store: JobStore = field(init=False)
    reporting: Reporting = field(init=False)
    effects: Effects = field(init=False)
    ended_groups: EndedGroups = field(init=False)
    completed: dict[tuple[str, str], int] = field(default_factory=dict)
    """Completions of a Job, by key and queue; the next one has its failures."""
    failed: dict[tuple[str, str], int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=pod_creation_latency)
    _counted: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Key of a Job to what is counted of it."""
    _shut_out: dict[str, set[str]] = field(default_factory=dict)
    """Name of a queue that is not open to the keys of Jobs whose groups it does not take."""
    _crowded: set[str] = field(default_factory=set)
    """Jobs of many pods that will be looked at in a moment anyway."""

    def __post_init__(self) -> None:
        self.store = JobStore(self._changed)
        self.reporting = Reporting(self.cluster, self.performer.recorder, self.store)
        self.effects = Effects(self.cluster, self.performer, self.clock, self.store, self.reporting, self.keys, self.latency)
        self.ended_groups = EndedGroups(self.cluster, self.work, self.store, self.effects.drop_group)

    def on_job(self, event: WatchEvent) -> None:
        self.store.on_job(event)
        if event.type == "DELETED":
            key = object_of(Job, event).key
            for keys in self._shut_out.values():
                keys.discard(key)
            for entry in self._counted.pop(key, ()):
                self.completed.pop(entry, None)
                self.failed.pop(entry, None)

    def on_priority_class(self, event: WatchEvent) -> None:
        found = object_of(PriorityClass, event)
        if event.type == "DELETED":
            self.store.priorities.pop(found.metadata.name, None)
        else:
            self.store.priorities[found.metadata.name] = found.value

    async def command(self, command: Command) -> str | None:
        """A Command on a Job: words for why it is not carried out; None where it will be."""
        target, namespace = command.target, command.metadata.namespace
        known = self.store.jobs.get(f"{namespace}/{target.name}")
        if known is None:
            return None if await self._is_there(target.name, namespace) else f"job {target.name} does not exist"
        if target.uid and target.uid != known.job.metadata.uid:
            return f"job {target.name} is another one than the Command is for"
        if command.action not in ACTIONS:
            return f"action {command.action!r} is none of a Job; {', '.join(ACTIONS)} are"
        request = Request(COMMAND, action=command.action, command=command.metadata.uid)
        if request not in known.requests:
            known.requests.append(request)
            self.work.add(KIND, known.job.key)
        return None

    async def _is_there(self, name: str, namespace: str, uid: str = "") -> bool:
        """The watch may only not have told of it yet. ``uid``: whether it is that one."""
        try:
            found = await self.cluster.get(volcano.JOBS, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return not uid or bool(found["metadata"]["uid"] == uid)

    # -- reconciling ----------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        """Bring a Job to rest. A refusal is tried again, but not for ever: then the Job is terminated. One whose queue is closed,
        or not there, waits for it."""
        self._crowded.discard(key)
        known = self.store.jobs.get(key)
        if known is None:
            return
        try:
            await self._reconcile(known)
            known.failures = 0
        except NotTaken as refused:
            queue = known.job.spec.queue
            if isinstance(refused, GroupNotTaken) and not self.takes_groups(queue):
                self._shut_out.setdefault(queue, set()).add(key)
                raise
            known.failures += 1
            if known.failures <= GIVE_UP:
                raise
            text = f"Job failed on action {refused.action} for retry limit reached"
            await self.reporting.report(known, event(known.job, "Warning", "ExecuteAction", text))
            await self._carry_out(known, TERMINATE, Request(COMMAND))
            self.work.add(KIND, key)

    def queue_opened(self, name: str) -> None:
        for key in self._shut_out.pop(name, ()):
            self.work.add(KIND, key)

    async def _is_gone(self, known: Known) -> bool:
        """Ask for a Job of which a pod or its PodGroup vanished: of one that is gone the garbage collector takes whatever is
        made for it, and as long as no watch tells of that, the two would make and take them hundreds of times a second."""
        meta = known.job.metadata
        gone = not await self._is_there(meta.name, meta.namespace, meta.uid)
        known.bereft = False
        if gone:
            self.store.drop_job(known)
        return gone

    async def _reconcile(self, known: Known) -> None:
        if known.bereft and await self._is_gone(known):
            return
        if not known.looked_at:
            known.looked_at = True
            view = self.store.view(known, self.clock.now())
            known.requests.extend(missed(view.job, view.pods, view.group))
        if known.doubted:
            await self.effects.make_sure(known)
        if known.requests or known.delayed:
            known.at_rest = False
        await self._ripe(known)
        while known.requests:
            await self._answer(known, known.requests[0])
            request = known.requests.popleft()
            if request.command:
                self.commanded(known.job.key, request.command)
        moved = not known.at_rest and await self._settle(known)
        if known.unwritten:
            await self._write_in_time(known, moved)

    async def _answer(self, known: Known, request: Request) -> None:
        """Carry out, or delay, what the policies answer to one event."""
        known.delayed = [each for each in known.delayed if not cancels(request, each)]
        found = answer(known.job, request)
        if found.action not in ACTIONS:
            return
        if found.after is None:
            await self._carry_out(known, found.action, request)
            return
        now = self.clock.now()
        since = min(now, request.since or now)
        left = found.after - (now - since)
        known.delayed.append(Delayed(self.clock.monotonic() + left, found.action, replace(request, since=since)))
        self.work.add_later(KIND, known.job.key, max(0.0, left))
        text = f"Execute action {found.action} after {found.after:g}s"
        await self.reporting.report(known, event(known.job, "Normal", "ExecuteAction", text), again=True)

    async def _ripe(self, known: Known) -> None:
        """Delayed actions whose time has come."""
        now = self.clock.monotonic()
        for each in [each for each in known.delayed if each.due <= now]:
            await self._carry_out(known, each.action, each.request)
            known.delayed = [other for other in known.delayed if other is not each]

    async def _carry_out(self, known: Known, action: str, request: Request) -> None:
        wanted = act(self.store.view(known, self.clock.now()), action, request)
        if not wanted:
            return
        await self._do(known, wanted)
        if action not in TARGETED:
            known.delayed.clear()
        if request.command:
            text = f"Start to execute command {action}, and clean it up to make sure executed not more than once."
            await self.reporting.report(known, event(known.job, "Normal", COMMAND, text), again=True)
        elif request.event != COMMAND:
            text = f"Start to execute action {action} "
            await self.reporting.report(known, event(known.job, "Normal", "ExecuteAction", text), again=True)

    async def _settle(self, known: Known) -> bool:
        """Return whether something was made, which will soon change what there is to write."""
        last: list[Effect] = []
        moved = False
        for _ in range(ROUNDS):
            if self.store.jobs.get(known.job.key) is not known:
                return False
            wanted = decide(self.store.view(known, self.clock.now()))
            known.at_rest = not wanted
            if wanted == last or not wanted:
                break
            await self._do(known, wanted)
            made = sum(isinstance(effect, Create) for effect in wanted)
            moved = moved or made > 0
            if made >= BURST:
                self.work.add(KIND, known.job.key)
                break
            if all(map(waits_for_nothing, wanted)):
                known.at_rest = all(map(only_counts, wanted))
                break
            last = wanted
        else:
            log.warning("job %s comes to no rest: %s", known.job.key, wanted)
        return moved

    async def _do(self, known: Known, wanted: list[Effect]) -> None:
        """Statuses here, and what may wait; everything else is the effects' own."""
        await self.effects.perform(known, [effect for effect in wanted if not _may_wait(effect)])
        for effect in wanted:
            if isinstance(effect, Requeue):
                self.work.add_later(KIND, known.job.key, effect.seconds)
            elif isinstance(effect, DropGroup) and effect.in_company:
                self.ended_groups.add(known, effect)
            elif isinstance(effect, WriteStatus):
                before = known.status
                if before.state.phase not in (known.written.state.phase, effect.status.state.phase):
                    await self._write(known, known.written.state.phase)  # whoever watches sees each phase, in its order
                known.decide(effect.status)
                if effect.urgent:
                    await self._write_at_once(known, before)

    async def _write_at_once(self, known: Known, before: JobStatus) -> None:
        """Write the status before anything else: no pod goes for a phase that a successor would not know of. Where the answer was
        lost, the watch may have told first that it is written."""
        written = known.written
        try:
            await self._write(known, before.state.phase)
        except ApiError as error:
            if error.code != 409 and known.written == written:  # at a conflict the Job was read again
                known.decide(before)
            raise

    async def _write_in_time(self, known: Known, moved: bool) -> None:
        """``moved``: whether something was made just now."""
        now, due = self.clock.monotonic(), known.due
        counts = known.status.state.phase == known.written.state.phase
        latest = now + (WAITING if counts and is_waiting(known.status) else PUT_OFF)
        known.latest = latest if due is None else min(latest, known.latest)
        pause = COUNTS if counts else PHASE
        if due is None or moved:
            due = known.due = min(now + pause, max(now, known.latest))
        elif due > now + pause:  # it was to count pods, and now there is a phase to tell
            due = known.due = now + pause
        elif now < due:
            return
        elif self.work.is_idle or now >= known.latest:
            await self._write(known, known.written.state.phase)
            return
        self.work.add_later(KIND, known.job.key, max(0.0, due - now), put_off=max(0.001, known.latest - due))

    async def _write(self, known: Known, before: str) -> None:
        known.due = None
        await self.reporting.write_status(known)
        phase, entry = known.job.phase, (known.job.key, known.job.spec.queue)
        if phase != before and phase in (COMPLETED, FAILED):
            counts = self.completed if phase == COMPLETED else self.failed
            counts[entry] = counts.get(entry, 0) + 1
            self._counted.setdefault(known.job.key, set()).add(entry)

    def _changed(self, key: str, pause: float) -> None:
        if not pause:
            self.work.add(KIND, key)
        elif key not in self._crowded:
            self._crowded.add(key)
            self.work.add_later(KIND, key, pause)


def _may_wait(effect: Effect) -> bool:
    return isinstance(effect, WriteStatus | Requeue) or (isinstance(effect, DropGroup) and effect.in_company)
