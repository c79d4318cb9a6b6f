"""The engine: the state of the cluster and one configuration, from which cycles are run.

The daemon, the simulator, replays and benchmarks all drive this class; it performs nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import perf_counter
from uuid import UUID

from msgspec.structs import replace

from pumice.devices.protocol import DeviceSharing
from pumice.devices.registry import device_types_from, settings_from
from pumice.devices.settings import Settings
from pumice.effects.backoff import Backoff
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.scheduler.cycle.actions import ACTIONS
from pumice.scheduler.cycle.cycle import LEAST_JOBS, Cycle, Plan
from pumice.scheduler.cycle.run import run
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.plugins.deviceshare import device_arguments
from pumice.scheduler.plugins.nodeorder import NodeOrderPlugin
from pumice.scheduler.plugins.predicates import VOLUME_PATIENCE, Predicates
from pumice.scheduler.plugins.registry import always, make
from pumice.scheduler.state.jobs import Job, Status, Task
from pumice.scheduler.state.ledger import PlacementState
from pumice.scheduler.state.moves import terms_of
from pumice.scheduler.state.scheduling_queue import FOR_EVER, Hint, QueueEvent, patience_of
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import NO_BACKOFF
from pumice.wire.device_config import DeviceConfig
from pumice.wire.scheduler_conf import DEFAULT_CONF, SchedulerConf, parse_scheduler_conf
from pumice.wire.volcano import INQUEUE, PENDING

RETRY, GANG_RETRY = Backoff(0.1, 60.0), Backoff(1.0, 60.0)
"""Of a pod whose Binding was refused, and of a gang of which one was."""


class Engine:
    """State plus framework plus placer."""

    def __init__(
        self, conf: SchedulerConf | None = None, device_config: DeviceConfig | None = None, state: State | None = None
    ) -> None:
        self.state = state or State()
        self.device_config = device_config
        self.device_types: list[DeviceSharing] = []
        self._served: tuple[Settings, DeviceConfig | None] | None = None
        """The configuration that the device types were built from."""
        self.configure(conf or parse_scheduler_conf(DEFAULT_CONF), device_config)

    # -- configuration ------------------------------------------------------------------------------------------

    def configure(self, conf: SchedulerConf, device_config: DeviceConfig | None = None,
                  device_types: list[DeviceSharing] | None = None, strict: bool = False) -> list[str]:  # fmt: skip
        """Take over a configuration and return sentences for the log. Raises BadInput and changes nothing when it
        cannot be used; ``strict``: nor when there is anything to remark. ``device_types`` replaces the ones that the arguments
        would make (tests)."""
        arguments = device_arguments(conf)
        settings = settings_from(arguments) if arguments is not None else Settings()
        if isinstance(settings, Refusal):
            raise BadInput(f"{settings.field}: {settings.text}")
        made = device_types if device_types is not None else device_types_from(settings, device_config) if arguments else []
        framework = Framework(conf, make, always(conf, made, device_config))
        remarks = _remarks(conf, settings, framework)
        if strict and remarks:
            raise BadInput(f"{remarks[0]} (strict)")
        self.conf, self.settings, self.device_config, self.framework = conf, settings, device_config, framework
        if self._served != (settings, device_config) or device_types is not None:
            self._served, self.device_types = (settings, device_config), made
            self.state.set_device_types(made, settings)
        self.state.groups.forget_remarks()
        self.placer = Placer(self.state, framework)
        terms, strange = terms_of(conf)
        self.state.moves.configure(terms)
        for job in list(self.state.terminating.gang_searches):  # who was to go was found by the configuration before
            self.state.terminating.withdraw(job)
        self.state.classes.seen.fitting.clear()
        self.state.count_images(counted=any(isinstance(p, NodeOrderPlugin) and p.images for p in framework.plugins))
        self.state.count_workloads(counted=any(isinstance(p, NodeOrderPlugin) and p.spread for p in framework.plugins))
        self.actions = [(name, ACTIONS[name]) for name in conf.actions if name in ACTIONS]
        patience, complaints = patience_of(conf)
        self.state.scheduling_queue.start_over(self.state.jobs.values(), patience)
        return complaints + strange + remarks

    @property
    def volume_patience(self) -> float:
        """Seconds for which a pod that has its place waits for its volumes."""
        found = (plugin.volume_patience for plugin in self.framework.plugins if isinstance(plugin, Predicates))
        return next(found, VOLUME_PATIENCE)

    # -- cycles -------------------------------------------------------------------------------------------------

    def cycle(
        self, now: float, rng: Random | None = None, *, wall: float | None = None, budget: float = float("inf"),
        tick: Callable[[], float] = perf_counter, at_least: int = LEAST_JOBS,
        heard: Callable[[bool], bool] | None = None,
    ) -> Plan:  # fmt: skip
        """Run one cycle at that time, on a clock that is never set: whatever waits, waits by it. ``wall`` is the time of day, for
        what the API server dates; without it both are one. ``budget`` bounds the cycle's length in seconds of ``tick``, but so
        many jobs are tried ``at_least``; what is left over stays active for the next one. ``heard``: see ``Cycle.heard``."""
        bits = int(now * 1e6) << 64 if rng is None else rng.getrandbits(128)
        uuid = str(UUID(int=bits, version=4))
        wall = now if wall is None else wall
        cycle = Cycle(self.state, self.framework, self.placer, now, uuid, budget, tick, wall, at_least, heard)
        return run(cycle, self.actions)

    def cycle_for_answers(self, now: float) -> Plan:
        """Run one cycle whose clock stands still: what is searched for in several cycles else is searched for to its end."""
        return self.cycle(now, tick=lambda: 0.0)

    def open_cycle(self, now: float, *, plugins: bool = False) -> Cycle:
        """Return a cycle for questions, which decides nothing: the cluster is shared out among the queues as they stand now, and
        the ``plugins`` are open."""
        cycle = Cycle(self.state, self.framework, self.placer, now, "", wall=now)
        self.framework.open_queues(cycle)
        for plugin in self.framework.plugins if plugins else ():
            plugin.open(cycle)
        return cycle

    def has_work(self, now: float) -> bool:
        """Return whether a cycle now could do anything."""
        return self.needs_cycle or self._due <= now

    @property
    def needs_cycle(self) -> bool:
        """Return whether something has happened that a cycle should look at, whatever the time."""
        scheduling_queue, nominations = self.state.scheduling_queue, self.state.nominations
        reported = scheduling_queue.dirty or scheduling_queue.recounted or self.state.hyper_nodes.unreported
        fitting = self.state.classes.seen.fitting
        refused = self.settings.delete_refused and self.state.pods.refused
        return bool(reported or refused or nominations.ripe or nominations.lapsed or fitting) or self.pressing

    @property
    def pressing(self) -> bool:
        """Return whether some pod may get a place or a reason; else there is status to be written at most."""
        nominations, news = self.state.nominations, self.placer.news
        if nominations.ripe or (nominations.kept and nominations.seen != news):
            return True
        active = any(queue.active and queue.present for queue in self.state.queues.values())
        return active or self.state.scheduling_queue.pressing(news)

    @property
    def lone_pod(self) -> bool:
        """True if whoever takes part is one pod that needs no others."""
        active = [queue.active for queue in self.state.queues.values() if queue.active]
        return len(active) == 1 and len(active[0]) == 1 and all(
            job.min_available <= 1 and len(job.pending) == 1 for job in active[0]
        )  # fmt: skip

    @property
    def outdated(self) -> bool:
        """Return whether unschedulable pods were told reasons that count other nodes than there are now."""
        return self.state.scheduling_queue.outdated(self.state.ledger.table.version)

    @property
    def _leaves(self) -> float:
        """Return when a terminating pod has had its time, where a reserved gang waits for one."""
        return self.state.ledger.first_overdue if self.state.scheduling_queue.reserved else FOR_EVER

    def next_wake(self) -> float | None:
        """Return the earliest time for which a job waits, or at which reasons are worked out anew; None when there is none."""
        return self._due if self._due < FOR_EVER else None

    @property
    def _due(self) -> float:
        queue = self.state.scheduling_queue
        return min(queue.due, self._leaves, queue.renews_at(self.state.ledger.table.version))

    # -- what became of the effects -----------------------------------------------------------------------------

    def bound(self, uid: str) -> Task | None:
        """The API server accepted the Binding; the watch will say the same in a moment."""
        task = self.state.tasks.get(uid)
        if task is not None and task.status is Status.BINDING and task.job is not None:
            task.job.move(task, Status.BOUND)
            task.backoff = NO_BACKOFF
            if task.job.backoff.times and task.job.ready_count >= task.job.min_available:
                task.job.backoff = replace(task.job.backoff, times=0)
            self.state.scheduling_queue.write_status(task.job)
        return task

    def hold_back(self, job: Job, cause: str, now: float) -> float:
        """The gang could not be bound as a whole: it is tried again after a pause, which grows each time. Returns its seconds."""
        job.backoff = job.backoff.refused(now, GANG_RETRY, cause)
        self.state.scheduling_queue.rest(job, QueueEvent.WRITE_REFUSED, Hint(job.backoff.until))
        return job.backoff.until - now

    def half_bound(self) -> list[Job]:
        """Gangs that have members on nodes and members without one, and never stood whole. Between two schedulers such a
        gang is one whose Bindings were broken off."""
        return [
            job for job in self.state.jobs.values()
            if job.min_available > 1 and 0 < job.ready_count < job.min_available and job.pending
            and job.phase in ("", PENDING, INQUEUE) and self.state.shards.begun(job) in ("", self.state.shards.mine)
        ]  # fmt: skip

    def bind_failed(self, uid: str, now: float) -> Task | None:
        """The Binding was refused: the pod is pending again and its cards are free; it is tried again with back-off."""
        task = self.state.tasks.get(uid)
        placement = self.state.ledger.placements.get(uid)
        if task is None or task.job is None or placement is None or placement.state is not PlacementState.ASSUMED:
            return None  # the watch has said since that it runs there, or that it is gone
        job: Job = task.job
        if task.status is not Status.BINDING:  # it is being deleted without ever having had a node
            self.state.ledger.release(uid)
            self.state.scheduling_queue.released()
            return None
        self.state.ledger.release(uid)
        if task.cls.constraints.claims:
            self.state.volumes.forget_assumed(f"{task.namespace}/{name}" for name in task.cls.constraints.claims)
        job.move(task, Status.PENDING)
        task.node = ""
        task.backoff = task.backoff.refused(now, RETRY)
        self.state.scheduling_queue.write_status(job)
        self.state.scheduling_queue.activate(job)
        self.state.scheduling_queue.released()
        return task


def _remarks(conf: SchedulerConf, settings: Settings, framework: Framework) -> list[str]:
    found = list(conf.warnings)
    found += [w for w in settings.warnings if not w.startswith("unknown argument") or "argument pumice." in w]
    found += [complaint for plugin in framework.plugins for complaint in plugin.arguments.complaints]
    return found
