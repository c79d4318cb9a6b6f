"""Reading a container's record back from the pod's status, after a restart of the twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pumice_lab.kubelet.records import Ended, Record

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


def seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
