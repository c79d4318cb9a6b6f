"""The probes of a pod's running containers, and what their results mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pumice.effects.vocabulary import Severity
from pumice.ports.clock import Clock
from pumice_lab.kubelet.probes import make_probe, watch_probe
from pumice_lab.kubelet.records import Record
from pumice_lab.runtime.spec import Runtime

Json = Mapping[str, Any]


class PodHealth:
    """``changed`` is called when a record was changed; ``tell`` (type, reason, text, container) writes an event.

    Containers that a probe wants restarted are collected in ``restarts``.
    """

    def __init__(self, runtime: Runtime, clock: Clock, address: str, changed: Callable[[], None],
                 tell: Callable[[Severity, str, str, str], None]) -> None:
        self.runtime, self.clock, self.address, self.changed, self.tell = runtime, clock, address, changed, tell
        self.restarts: set[str] = set()
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self, record: Record, container: Json) -> None:
        """A startup probe comes first; the others wait for it."""
        if record.kind == "init" or record.state != "running":
            return
        record.started = not container.get("startupProbe")
        if startup := container.get("startupProbe"):
            self._probe(record, container, "Startup", startup)
        else:
            self._start_others(record, container)

    def stop(self, name: str) -> None:
        for task in self._tasks.pop(name, ()):
            if task is not asyncio.current_task():
                task.cancel()

    def stop_all(self) -> None:
        for name in list(self._tasks):
            self.stop(name)

    def take_restarts(self) -> set[str]:
        wanted, self.restarts = self.restarts, set()
        return wanted

    def _start_others(self, record: Record, container: Json) -> None:
        if readiness := container.get("readinessProbe"):
            self._probe(record, container, "Readiness", readiness)
        else:
            record.ready = True
        if liveness := container.get("livenessProbe"):
            self._probe(record, container, "Liveness", liveness)

    def _probe(self, record: Record, container: Json, kind: str, probe: Json) -> None:
        attempt = make_probe(probe, container, self.address, self.runtime, record.container_id)

        def report(good: bool, text: str) -> None:
            self._on_result(record, container, kind, good, text)

        task = asyncio.create_task(watch_probe(probe, attempt, self.clock, report), name=f"{kind} {record.name}")
        self._tasks.setdefault(record.name, []).append(task)

    def _on_result(self, record: Record, container: Json, kind: str, good: bool, text: str) -> None:
        if not good:
            self.tell("Warning", "Unhealthy", f"{kind} probe failed: {text}", record.name)
        match kind, good:
            case "Readiness", _ if record.ready != good:
                record.ready = good
            case "Startup", True if not record.started:
                record.started = True
                self.stop(record.name)
                self._start_others(record, container)
            case ("Liveness" | "Startup"), False:
                self.tell("Normal", "Killing", f"Container {record.name} failed {kind.lower()} probe, will be restarted",
                          record.name)
                self.restarts.add(record.name)
            case _:
                return
        self.changed()
