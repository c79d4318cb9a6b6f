"""One scheduling cycle: open, the configured actions, close (spec volcano-core 6).

A cycle works on the live state: every tentative step goes through the ledger and can be taken back by its receipt. It makes
no call and reads no clock; what the world shall do comes out as effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter

from pumice.engine.cycle import status
from pumice.engine.effects import Bind, Effect, Event
from pumice.engine.framework import Framework
from pumice.engine.placing.placer import Choice, Placer
from pumice.engine.plugins.storage import choices as volumes_for
from pumice.engine.state.classes import PodClass
from pumice.engine.state.jobs import Job, QueueState, Status, Task
from pumice.engine.state.ledger import Holding, Receipt
from pumice.engine.state.state import State
from pumice.wire.volcano import INQUEUE, SCHEDULING_API

RETRY = 60.0
"""Seconds after which a job that waits for a release or a queue is tried again although nothing of the kind was seen. What it
waits for wakes it; this is for what nobody thought of."""
CHUNK = 64
"""Pods of one ready job that are placed before the orders are looked at again (spec 10.2 allows several per pass)."""


@dataclass(slots=True)
class Measures:
    """How long the parts took, in seconds, and what came out."""

    actions: dict[str, float] = field(default_factory=dict)
    plugins: dict[tuple[str, str], float] = field(default_factory=dict)
    open: float = 0.0
    total: float = 0.0
    placed: int = 0
    refused: int = 0
    jobs: list[float] = field(default_factory=list)
    """Seconds from creation to standing, of the jobs whose gang stood for the first time."""
    assumed: list[float] = field(default_factory=list)
    """Seconds from creation to decision, of the pods placed."""
    stages: list[tuple[str, float]] = field(default_factory=list)
    """Predicate and Scoring: seconds of each pass over many nodes."""
    unready: list[str] = field(default_factory=list)
    """Keys of jobs that were tried and do not stand."""


@dataclass(slots=True)
class Plan:
    """What a cycle decided."""

    effects: list[Effect]
    measures: Measures
    more: bool = False
    """Whether jobs are left that the cycle had no time for."""


@dataclass(slots=True, eq=False)
class Cycle:
    """The running cycle. ``uuid`` marks the conditions that it writes; ``deadline`` ends it early (in perf_counter
    seconds of ``tick``), so that a huge backlog does not keep the first Bindings waiting."""

    state: State
    framework: Framework
    placer: Placer
    now: float
    uuid: str
    budget: float = float("inf")
    tick: Callable[[], float] = perf_counter
    wall: float = 0.0
    """The time of day, for what people and the API server date; ``now`` is never set back."""
    effects: list[Effect] = field(default_factory=list)
    measures: Measures = field(default_factory=Measures)
    tried: dict[Job, None] = field(default_factory=dict)
    blocked: dict[Job, str] = field(default_factory=dict)
    """Jobs that their queue or the enqueue check refused, with the words for it."""
    short_of_share: dict[Job, None] = field(default_factory=dict)
    """Jobs for whose pods there is room, but not within the share of their queue."""
    invalid: dict[Job, None] = field(default_factory=dict)
    """Jobs that lack pods: only a change of the job itself can help."""
    discarded: dict[Job, None] = field(default_factory=dict)
    """Gangs that were tried and taken back: they wait for whatever is released."""
    explained: dict[Job, None] = field(default_factory=dict)
    """Jobs some of whose pods got their reason in this cycle."""
    standing: list[Statement] = field(default_factory=list)
    """Gangs that stand in part on what is being released: what they took is kept from others until the cycle ends."""
    actions: frozenset[str] = frozenset()
    """Those that run in it."""
    _started: float = 0.0
    _whys: dict[PodClass, tuple[int, str]] = field(default_factory=dict)

    def run(self, actions: list[tuple[str, Callable[[Cycle], None]]]) -> Plan:
        self.actions = frozenset(name for name, _ in actions)
        self._started = begin = self.tick()
        self.placer.evaluation.tick, self.placer.evaluation.stages = self.tick, self.measures.stages
        self._open()
        self.measures.open = self.tick() - begin
        for name, action in actions:
            before = self.tick()
            action(self)
            self.measures.actions[name] = self.measures.actions.get(name, 0.0) + self.tick() - before
        self._close()
        self.measures.total = self.tick() - begin
        return Plan(self.effects, self.measures, self.out_of_time())

    def out_of_time(self) -> bool:
        return self.tick() - self._started > self.budget

    # -- open and close -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        state = self.state
        self.placer.fallen.clear()
        self._give_up()
        state.agenda.wake_due(self.now)
        if state.classes.images.fresh:
            state.pods.sort_by_images()
        for job in self.placer.standing:  # they take their part again before others see it
            if job.known:
                state.agenda.activate(job)
        self._wake()
        self._hope()
        state.agenda.retell(state.ledger.table.version, self.now)
        for job in state.agenda.dirty:
            job.settle()
        for plugin in self.framework.plugins:
            before = self.tick()
            plugin.open(self)
            self.measures.plugins[plugin.name, "OnSessionOpen"] = self.tick() - before

    def _wake(self) -> None:
        """Offer what was released to the classes that sleep, as far as the time allows; the others come next cycle."""
        agenda, begin = self.state.agenda, self.tick()
        news = self.placer.news
        if agenda.woken_at == news:
            return
        if self.placer.changed_elsewhere():
            for job in list(agenda.waiting):
                if any(t.cls.constraints.awaits_pods or t.cls.constraints.claims for t in job.pending.values()):
                    agenda.activate(job)
        agenda.offer(news, self.placer.is_asleep, lambda: self.tick() - begin > self.budget / 4)

    def _give_up(self) -> None:
        """Gangs stand on what is being released. A pod that does not go would starve all behind them: after a while its place
        is promised to nobody until it is gone, which it and who stood on it are told."""
        state = self.state
        for uid in state.pods.take_overdue(self.now):
            if not state.ledger.give_up(uid):
                continue
            namespace, _, name = state.pods.name_of(uid).partition("/")
            node = state.ledger.holdings[uid].node
            text = f"pod {namespace}/{name} on {node} is Terminating for too long; nobody waits for its place any more"
            self.effects.append(Event("Pod", "v1", namespace, name, uid, "Warning", "StuckTerminating", text))
            for job in self.placer.standing:
                if any(task.trial == (Status.PIPELINED, node) for task in job.pending.values()):
                    about = ("PodGroup", SCHEDULING_API, job.namespace, job.name, job.uid)
                    self.effects.append(Event(*about, "Warning", "StuckTerminating", text))

    def _hope(self) -> None:
        """Who may take part again because the nodes changed asks for a share again."""
        for queue in self.queues():
            for job in queue.active:
                if job.runnable < len(job.pending):
                    for task in job.pending.values():
                        if task.hopeless and not self.placer.hopeless(task.cls):
                            job.mark(task, gated=task.gated, hopeless=False)

    def _close(self) -> None:
        state = self.state
        self._explain()
        for plugin in self.framework.plugins:
            before = self.tick()
            plugin.close(self)
            self.measures.plugins[plugin.name, "OnSessionClose"] = self.tick() - before
        self.effects.extend(status.close(self))
        for uid in list(state.ledger.pipelined):
            state.ledger.unpipeline(uid)
            task = state.tasks.get(uid)
            if task is not None and task.status is Status.PIPELINED and task.job is not None:
                task.job.move(task, Status.PENDING)
        self._let_go()
        for job in self.tried:
            self._put_to_rest(job)
        if self.standing:  # others saw the held room as taken; who comes anew, and is more important, may have it
            self.placer.reconsider(self.placer.fallen)
        if not self.out_of_time():
            for queue in self.queues():
                for job in [job for job in queue.active if job not in self.tried]:
                    state.agenda.wait(job, self.now + RETRY)  # no action of this configuration looks at it
        state.agenda.close()

    def _let_go(self) -> None:
        """Take back what standing gangs hold. Nothing of it reached the world, and no Binding may rest on it. Rows of gangs
        that stand no longer are offered to whoever sleeps."""
        table, before = self.state.ledger.table, self.placer.standing
        now = {statement.job: statement.take_back() for statement in reversed(self.standing)}
        for job, rows in before.items():
            if job in now:
                continue
            if job.known and job not in self.tried:
                now[job] = rows  # no time for it in this cycle
                continue
            for row in rows:
                table.touch(row, gain=True)
        self.placer.standing = now

    def _put_to_rest(self, job: Job) -> None:
        """A job that was tried leaves the active set until something that it waits for happens."""
        agenda = self.state.agenda
        if not job.known:
            return
        pending = [t for t in job.pending.values() if not t.gated]
        if job.held_until > self.now:
            job.retry_at = job.held_until
            agenda.wait(job, job.held_until)
            return
        if job in self.invalid or (not pending and not job.is_pending()):
            agenda.dismiss(job)
            return
        if job.phase == INQUEUE and job.inqueue:
            agenda.bound_promise(job, self.now)
        hoping = [t for t in pending if not self.never(t)]
        asleep = {t.cls for t in hoping if self.placer.is_asleep(t.cls)}
        if pending and not hoping:
            agenda.sleep(job, ())
        elif job in self.blocked or job in self.discarded or job in self.placer.standing:
            agenda.wait(job, self._again(job))
        elif any(t.retry_at > self.now for t in pending):
            job.retry_at = min(t.retry_at for t in pending if t.retry_at > self.now)
            agenda.wait(job, job.retry_at)
        elif all(t.cls in asleep for t in hoping):
            agenda.sleep(job, asleep)
        elif not self.out_of_time():  # else it is not finished with, and stays active
            agenda.wait(job, self._again(job))

    def _again(self, job: Job) -> float:
        """When to look at a job that waits for room although nothing was released."""
        return min(self.now + RETRY, self.framework.job_due(job, self.now))

    @staticmethod
    def never(task: Task) -> bool:
        """Whether the pod can never be placed as it is written."""
        return bool(task.cls.refusals or task.request.refused)

    def refused(self, task: Task, *, amid_gang: bool = False) -> None:
        """No node took the pod; why is worked out later, once per class (``_explain``), or at once while the rest of its
        gang holds the room that it lacks."""
        if amid_gang:
            task.puzzling, task.error = False, self.placer.why(task.cls).text
            self._despair(task, self.placer.hopeless(task.cls))
            return
        self.state.agenda.ask_why(task)

    def _explain(self) -> None:
        """Work out reasons while there is time; at least one class per cycle. The rest waits for the next cycle."""
        state, begin = self.state, self.tick()
        end = state.ledger.table.changes.end
        for cls in list(state.agenda.unexplained):
            tasks = state.agenda.take_unexplained(cls)
            pending = [t for t in tasks if t.puzzling and t.status is Status.PENDING and t.job is not None]
            if not pending:
                continue
            known = self._whys.get(cls)
            if known is None or known[0] != end:
                known = self._whys[cls] = (end, self.placer.why(cls).text)
            hopeless = self.placer.hopeless(cls)
            for task in pending:
                task.puzzling, task.error = False, known[1]
                assert task.job is not None
                self.explained[task.job] = None
                self._despair(task, hopeless)
            if self.tick() - begin > self.budget / 3:
                return

    def _despair(self, task: Task, hopeless: bool) -> None:
        """What no node can ever hold keeps nothing from others: neither a share of its queue nor its job's promise."""
        job = task.job
        if job is None or task.hopeless is hopeless:
            return
        job.mark(task, gated=task.gated, hopeless=hopeless)
        if hopeless:
            self.state.agenda.wake_waiting()
            if job.stalled:
                self.state.agenda.end_promise(job)

    # -- what plugins may look at and say -----------------------------------------------------------------------

    def looked_at(self) -> Iterable[Job]:
        return {**self.state.agenda.dirty, **self.tried, **self.explained}

    def stands(self, job: Job) -> None:
        status.say_gang_stands(self, job)

    def lacks(self, job: Job, members: int) -> None:
        status.say_gang_lacks(self, job, members)

    # -- jobs that may take part --------------------------------------------------------------------------------

    def present(self, job: Job) -> bool:
        """Whether group and queue exist (spec 5); a bare pod's group may still be on its way."""
        if not job.queue.present:
            return False
        return job.group is not None or (job.implicit and job.wait_until <= self.now)

    def queues(self) -> list[QueueState]:
        """Queues with jobs that have something to be tried."""
        return [queue for queue in self.state.queues.values() if queue.active]

    def candidates(self, queue: QueueState) -> list[Job]:
        """Jobs of a queue that may be tried now; a bare pod's job whose group is awaited steps aside until then."""
        if not queue.present:
            for job in queue.active:
                job.refusal = self.blocked[job] = queue.missing_text
                self.tried[job] = None
            return []
        for job in [job for job in queue.active if job.held_until > self.now]:
            job.refusal = self.blocked[job] = job.held_because
            self.tried[job] = None
            self.state.agenda.wait(job, job.held_until)
        found = [job for job in queue.active if self.present(job)]
        if len(found) < len(queue.active) and queue.present:
            for job in [job for job in queue.active if not self.present(job)]:
                self.state.agenda.wait(job, job.wait_until if job.wait_until > self.now else self.now + RETRY)
        return found


@dataclass(slots=True)
class Statement:
    """An ordered list of tentative steps on one job: committed or taken back as a whole (spec 8)."""

    cycle: Cycle
    job: Job
    steps: list[tuple[Task, Receipt, Choice]] = field(default_factory=list)

    def allocate(self, task: Task, choice: Choice) -> None:
        cycle, state = self.cycle, self.cycle.state
        holding = Holding(task.uid, choice.node, task.request, choice.grants, marks=task.marks,
                          features=task.features)  # fmt: skip
        receipt = state.ledger.reserve(holding)
        task.charged = state.charges.of(task.cls, choice.grants)
        self.job.mark(task, gated=task.gated, hopeless=False)
        self.job.move(task, Status.ALLOCATED)
        task.node, task.error = choice.node, ""
        self.steps.append((task, receipt, choice))
        cycle.framework.placed(task)

    def pipeline(self, task: Task, choice: Choice) -> None:
        state = self.cycle.state
        holding = Holding(task.uid, choice.node, task.request, choice.grants, marks=task.marks,
                          features=task.features)  # fmt: skip
        receipt = state.ledger.pipeline(holding)
        self.job.move(task, Status.PIPELINED)
        task.node, task.error = choice.node, ""
        task.trial = (Status.PIPELINED, choice.node)
        self.steps.append((task, receipt, choice))
        self.cycle.framework.placed(task)

    def discard(self) -> None:
        """Take everything back, last step first; each task remembers where it would have gone."""
        self.cycle.discarded[self.job] = None
        self.cycle.placer.reconsider(t.cls for t in self.job.pending.values())
        for task, receipt, choice in reversed(self.steps):
            self.cycle.state.ledger.undo(receipt)
            task.trial = (task.status, choice.node)
            task.node = ""
            self.job.move(task, Status.PENDING)
            self.cycle.framework.removed(task)
        self.steps.clear()

    def stand(self) -> None:
        """Neither committed nor discarded: the gang would be whole once something is released (spec 8)."""
        for task, _, choice in self.steps:
            task.trial = (task.status, choice.node)
        self.cycle.standing.append(self)

    def take_back(self) -> frozenset[int]:
        """The end of the cycle for a gang that stands in part. Returns the rows on which it had room."""
        rows = set()
        for task, receipt, choice in reversed(self.steps):
            if task.status is Status.ALLOCATED:
                self.cycle.state.ledger.undo(receipt)
                self.job.move(task, Status.PENDING)
                rows.add(choice.row)
            task.node = ""
            self.cycle.framework.removed(task)
        self.steps.clear()
        return frozenset(rows)

    def commit(self) -> None:
        """Hand the allocated tasks to the binder; promises (pipelined) stay until the cycle ends."""
        cycle = self.cycle
        state = cycle.state
        allocated = [(t, c) for t, _, c in self.steps if t.status is Status.ALLOCATED]
        # A gang that stood once gets single members back as they come; one that never did stands or falls with each of them.
        together = len(allocated) > 1 or not self.job.stood
        gang = self.job.key if self.job.min_available > 1 and together else ""
        for task, choice in allocated:
            state.ledger.assume(task.uid)
            self.job.move(task, Status.BINDING)
            task.trial = None
            annotations: dict[str, str] = {}
            lock = ""
            for grant in choice.grants:
                family = state.ledger.books[grant.family].family
                annotations.update(family.annotations(grant, int(cycle.wall * 1e9)))
                lock = lock or family.lock
            claims = volumes_for(state, task.cls, choice.node) if task.cls.constraints.claims else {}
            state.volumes.promise(claims)
            cycle.effects.append(
                Bind(task.uid, task.namespace, task.name, choice.node, annotations, choice.grants, gang,
                     tuple(claims.items()), cycle.uuid, lock)
            )  # fmt: skip
            cycle.measures.placed += 1
            cycle.measures.assumed.append(max(0.0, cycle.wall - task.created))
        if not self.job.scheduled_at:
            self.job.scheduled_at = cycle.wall
            cycle.measures.jobs.append(max(0.0, cycle.wall - self.job.created))
        state.agenda.look_at(self.job)
        self.steps.clear()
