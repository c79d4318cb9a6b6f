"""The fit check at the end of admission: what is asked against what the node has and its other pods use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.wire.quantity import milli, round_up

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DoesNotFit(Exception):
    """The kubelet's refusal of a pod. ``reason`` is the pod's (OutOfcpu, OutOfvolcano.sh/vgpu-number), ``text`` the bare
    message."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        return f"OutOf{self.resource}"

    @property
    def text(self) -> str:
        return (f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
                f"used: {self.used}, capacity: {self.capacity}")


def check_fit(pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, Any],
              devices_in_use: Mapping[str, int]) -> None:
    """Raises DoesNotFit with the first resource that is short.

    cpu counts in thousandths, everything else in whole units. A resource that the node does not have is not checked
    (the kubelet removes it before its check). ``devices_in_use``: devices that the manager has given out, by
    resource; the node has at least these, whatever its status says at the moment.
    """
    others = list(others)
    capacity = {name: _amount(name, value) for name, value in allocatable.items()}
    for name, count in devices_in_use.items():
        capacity[name] = max(capacity.get(name, 0), count)
    if len(others) + 1 > capacity.get("pods", 110):
        raise DoesNotFit("pods", 1, len(others), capacity.get("pods", 110))
    wanted = pod_requests(pod)
    used: dict[str, int] = {}
    for other in others:
        for name, amount in pod_requests(other).items():
            used[name] = used.get(name, 0) + amount
    for name, amount in wanted.items():
        if name not in capacity or not amount:
            continue
        if amount > capacity[name] - used.get(name, 0):
            raise DoesNotFit(name, amount, used.get(name, 0), capacity[name])


def pod_requests(pod: Pod) -> dict[str, int]:
    """Kubernetes: the larger of (containers and sidecars together) and (each init container and the sidecars before it)."""
    spec = pod["spec"]
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        for name, amount in asked.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    _add(total, {name: _amount(name, value) for name, value in (spec.get("overhead") or {}).items()})
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _amount(name, value) for name, value in asked.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _amount(name: str, value: Any) -> int:
    return milli(value) if name == "cpu" else round_up(value)
