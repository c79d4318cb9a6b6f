"""Ages, and the row of a pod (READY, STATUS and RESTARTS, which are drawn from many places), as kubectl prints them."""

from __future__ import annotations

from typing import Any

from pumice.wire.times import moment, seconds

Json = dict[str, Any]


def human(seconds: float) -> str:
    """A duration in the steps that kubectl shows: 45s, 3m12s, 5m, 2h3m, 26h, 3d4h, 12d, 2y30d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def duration_since(text: str | None, now: float) -> str:
    if not text:
        return "<unknown>"
    since = moment(text)
    return "<invalid>" if since is None else human(now - since)


def age(metadata: Json, now: float) -> str:
    return duration_since(metadata.get("creationTimestamp"), now)


def pod_cells(value: Json, now: float) -> list[Any]:
    """Name, ready, status, restarts and age; then address, node, nominated node and readiness gates."""
    spec, status, metadata = value.get("spec") or {}, value.get("status") or {}, value.get("metadata") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or []) + len(sidecars)
    reason, ready, restarts, last = _progress(spec, status, sidecars)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    shown = str(restarts)
    if restarts and last:
        shown = f"{restarts} ({human(now - last)} ago)"
    return [metadata.get("name", ""), f"{ready}/{total}", reason, shown, age(metadata, now),
            status.get("podIP") or "<none>", spec.get("nodeName") or "<none>", status.get("nominatedNodeName") or "<none>",
            _gates(spec, status)]  # fmt: skip


def _progress(spec: Json, status: Json, sidecars: set[Any]) -> tuple[str, int, int, float]:
    """Status text, ready containers, restarts, and when the last restart was."""
    reason = status.get("reason") or status.get("phase") or ""
    scheduled: Json = next((c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled"), {})
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    restarts, last, ready = 0, 0.0, 0
    initializing = False
    inits = status.get("initContainerStatuses") or []
    for i, container in enumerate(inits):
        restarts += container.get("restartCount", 0)
        last = max(last, _last_end(container))
        state = container.get("state") or {}
        sidecar = container.get("name") in sidecars
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if "terminated" in state:
            if not state["terminated"].get("exitCode"):
                continue
            reason = "Init:" + _ended(state["terminated"])
        elif state.get("waiting", {}).get("reason") not in (None, "", "PodInitializing"):
            reason = "Init:" + state["waiting"]["reason"]
        else:
            reason = f"Init:{i}/{len(spec.get('initContainers') or [])}"
        initializing = True
        break
    if initializing and not _initialized(status):
        return reason, ready, restarts, last
    regular, running, completed = status.get("containerStatuses") or [], False, False
    restarts = sum(c.get("restartCount", 0) for c in inits if c.get("name") in sidecars)
    for container in reversed(regular):
        restarts += container.get("restartCount", 0)
        last = max(last, _last_end(container))
        state = container.get("state") or {}
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state["terminated"])
            completed = completed or reason == "Completed"
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if reason == "Completed" and running:
        condition: Json = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
        reason = "Running" if condition.get("status") == "True" else "NotReady"
    return reason, ready, restarts, last


def _initialized(status: Json) -> bool:
    return any(c.get("type") == "Initialized" and c.get("status") == "True" for c in status.get("conditions") or [])


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _last_end(container: Json) -> float:
    return seconds(((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))


def _gates(spec: Json, status: Json) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return "<none>"
    true = {c.get("type") for c in status.get("conditions") or [] if c.get("status") == "True"}
    return f"{sum(g.get('conditionType') in true for g in gates)}/{len(gates)}"
