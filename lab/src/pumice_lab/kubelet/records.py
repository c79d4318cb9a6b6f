"""Records of each container of a pod, and the next step by them. Pure: the worker carries it out."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pumice.effects.backoff import Backoff
from pumice.wire.times import seconds

BACKOFF = Backoff(10.0, 300.0)
GOOD_RUN = 600.0  # a run of this length clears the back-off

Kind = Literal["init", "sidecar", "app", "ephemeral"]
State = Literal["waiting", "running", "terminated"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished run. Times are Unix seconds; 0 where the container never started."""

    code: int
    reason: str
    message: str = ""
    signal: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    container_id: str = ""


@dataclass(slots=True)
class Record:
    """One container. ``ended`` is the run that the state shows, ``last`` the one before the present state."""

    name: str
    kind: Kind
    state: State = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    container_id: str = ""
    started_at: float = 0.0
    restarts: int = 0
    started: bool = False
    ready: bool = False
    ended: Ended | None = None
    last: Ended | None = None
    failures: int = 0
    """Runs in a row that were no good ones."""
    backoff_until: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.state == "terminated" and self.ended is not None and self.ended.code == 0

    @property
    def failed(self) -> bool:
        return self.state == "terminated" and self.ended is not None and self.ended.code != 0

    @property
    def ever_ran(self) -> bool:
        return self.state != "waiting" or self.last is not None

    def on_started(self, container_id: str, now: float, *, probed: bool) -> None:
        """``probed``: a startup or readiness probe has the say about started and ready."""
        if self.ever_ran:
            self.restarts += 1
        self.last = self.ended or self.last
        self.state, self.ended, self.reason, self.message = "running", None, "", ""
        self.container_id, self.started_at = container_id, now
        self.started = self.ready = not probed

    def on_ended(self, ended: Ended) -> None:
        self.last = self.ended or self.last
        self.state, self.ended, self.started, self.ready = "terminated", ended, False, False
        if ended.started_at and ended.finished_at - ended.started_at > GOOD_RUN:
            self.failures = 0
        self.backoff_until = ended.finished_at + (BACKOFF.pause(self.failures - 1) if self.failures else 0.0)
        self.failures += 1

    def on_not_created(self, reason: str, message: str, now: float) -> None:
        """The run did not even begin; it is tried again, with back-off."""
        self.state, self.reason, self.message = "waiting", reason, message
        self.last, self.ended = self.ended or self.last, None
        self.backoff_until = now + BACKOFF.pause(self.failures) / 2
        self.failures += 1

    def wait_for_restart(self, pod: str) -> bool:
        """Show the back-off. True when that is news."""
        if self.reason == "CrashLoopBackOff" or self.state == "waiting":
            return False
        self.last, self.ended = self.ended or self.last, None
        self.state, self.reason = "waiting", "CrashLoopBackOff"
        pause = int(self.backoff_until - (self.last.finished_at if self.last else 0.0))
        self.message = f"back-off {_go_duration(pause)} restarting failed container={self.name} pod={pod}"
        return True


def _go_duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


@dataclass(slots=True)
class Next:
    """Containers to start and to stop now; those that wait for their back-off; when to look again; how it ended."""

    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    backing_off: list[str] = field(default_factory=list)
    wake_at: float | None = None
    done: Literal["", "Succeeded", "Failed"] = ""


def records_of(pod: Mapping[str, Any]) -> list[Record]:
    """Fresh records: init containers and sidecars in their order, then the containers."""
    spec = pod["spec"]
    inits: list[Record] = []
    for container in spec.get("initContainers") or ():
        inits.append(Record(container["name"], "sidecar" if container.get("restartPolicy") == "Always" else "init"))
    apps = [Record(container["name"], "app") for container in spec["containers"]]
    for record in (apps if inits else ()):
        record.reason = "PodInitializing"
    return [*inits, *apps]


def guests_of(pod: Mapping[str, Any], known: Container[str]) -> list[Record]:
    """Fresh records of the ephemeral containers that have come since."""
    return [Record(c["name"], "ephemeral") for c in pod["spec"].get("ephemeralContainers") or () if c["name"] not in known]


def start_guests(step: Next, guests: Sequence[Record], now: float) -> None:
    """An ephemeral container runs once, beside whatever the others do, and nothing follows from its end."""
    for guest in guests:
        if guest.state == "waiting":
            _start_or_wait(step, guest, now)


def next_step(records: Sequence[Record], policy: str, now: float) -> Next:
    """Return the step that restartPolicy ``policy`` asks for at the moment ``now``."""
    step = Next()
    inits = [r for r in records if r.kind != "app"]
    apps = [r for r in records if r.kind == "app"]
    over = all(_is_over(app, policy) for app in apps)
    initialised = all(r.succeeded for r in inits if r.kind == "init") or any(app.ever_ran for app in apps)
    for record in inits:
        if record.kind == "sidecar":
            if record.state != "running" and not over:
                _start_or_wait(step, record, now)
            if not initialised and not (record.state == "running" and record.started):
                return step
        elif not record.succeeded and not initialised:
            if record.failed and policy == "Never":
                return _finish(step, inits, "Failed")
            if record.state != "running":
                _start_or_wait(step, record, now)
            return step
    if over:
        return _finish(step, inits, "Failed" if any(app.failed for app in apps) else "Succeeded")
    for app in apps:
        if app.state != "running" and not _is_over(app, policy):
            _start_or_wait(step, app, now)
    return step


def _is_over(record: Record, policy: str) -> bool:
    if record.state != "terminated":
        return False
    return policy == "Never" or (policy == "OnFailure" and record.succeeded)


def _start_or_wait(step: Next, record: Record, now: float) -> None:
    if record.backoff_until <= now:
        step.start.append(record.name)
        return
    step.wake_at = record.backoff_until if step.wake_at is None else min(step.wake_at, record.backoff_until)
    if record.state == "terminated":
        step.backing_off.append(record.name)


def _finish(step: Next, inits: Sequence[Record], phase: Literal["Succeeded", "Failed"]) -> Next:
    """Sidecars end after the containers, the last one first; then the pod is over."""
    running = [r.name for r in reversed(inits) if r.kind == "sidecar" and r.state == "running"]
    return Next(stop=running) if running else Next(done=phase)


# -- Reading a container's record back from the pod's status, after a restart of the twin ----------------------------

Json = Mapping[str, Any]
LOST = 137  # the exit code that Kubernetes gives to a container that it can no longer find


def restore(record: Record, pod: Json, now: float, running: Callable[[str], bool]) -> None:
    """Fill a fresh record. ``running(container id)``: does the container still run, and is it ours again?"""
    shown = _shown(pod, record.name)
    if shown is None:
        return
    record.restarts = int(shown.get("restartCount") or 0)
    record.container_id = _bare(shown.get("containerID"))
    state, last = shown.get("state") or {}, (shown.get("lastState") or {}).get("terminated")
    record.last = ended_from(last) if last else None
    if run := state.get("running"):
        started = seconds(run.get("startedAt"))
        if running(record.container_id):
            record.state, record.started_at, record.started, record.ready = "running", started, True, True
        else:
            record.on_ended(Ended(LOST, "ContainerStatusUnknown", "The container ended with the cluster's process",
                                  started_at=started, finished_at=now, container_id=record.container_id))
    elif terminated := state.get("terminated"):
        record.state, record.ended = "terminated", ended_from(terminated)


def ended_from(shown: Json) -> Ended:
    """A terminated state of a container status."""
    return Ended(int(shown.get("exitCode") or 0), str(shown.get("reason") or ""), str(shown.get("message") or ""),
                 int(shown.get("signal") or 0), seconds(shown.get("startedAt")), seconds(shown.get("finishedAt")),
                 _bare(shown.get("containerID")))


def _shown(pod: Json, name: str) -> Json | None:
    status = pod.get("status") or {}
    every = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()),
             *(status.get("ephemeralContainerStatuses") or ()))  # fmt: skip
    return next((s for s in every if s["name"] == name), None)


def _bare(container_id: str | None) -> str:
    return str(container_id or "").removeprefix("pumice://")
