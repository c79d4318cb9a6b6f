"""A region in words: limits, use, who is let through, and why the limiter of compute stands idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pumice.adapters.region.extension import DeviceBudget
from pumice.adapters.regular_files import variable_of
from pumice.ports.region import DeviceUse, RegionDevice, RegionSnapshot
from pumice.wire import variables

QUIET = 10
"""Seconds without a kernel after which a container counts as idle, as two rounds of a monitor have it."""
POLICY = variables.CORE_POLICY


@dataclass(frozen=True, slots=True)
class DeviceStory:
    """One card of a region. ``idle`` says why nobody is held back; empty while the limiter is at work."""

    device: RegionDevice
    use: DeviceUse
    idle: str
    budget: DeviceBudget | None = None


def stories(region: RegionSnapshot, alive: Mapping[int, int], budgets: tuple[DeviceBudget, ...], policies: Mapping[int, str],
            now: float) -> list[DeviceStory]:  # fmt: skip
    """Each card of the region. ``alive`` maps slots to living pids, ``policies`` pids to their core policy as far as it can
    be read, ``now`` is Unix time."""
    return [
        DeviceStory(
            device,
            sum((p.use[device.index] for p in region.processes if p.slot in alive and device.index in p.use), DeviceUse()),
            idle(region, device, alive, policies, now),
            budgets[device.index] if device.index < len(budgets) else None,
        )
        for device in region.devices
    ]


def idle(region: RegionSnapshot, device: RegionDevice, alive: Mapping[int, int], policies: Mapping[int, str],
         now: float) -> str:  # fmt: skip
    """Why the compute of this card is not limited at the moment; empty when it is (HAMi-core src, HAMi
    cmd/vGPUmonitor/feedback.go)."""
    known = {policy.lower() for pid, policy in policies.items() if pid in alive.values()}
    if not alive:
        return "no living process uses the region"
    if not 0 < device.sm_limit < 100:
        return "no core limit is set"
    if known == {"disable"}:
        return f"switched off by {POLICY}=disable"
    if region.utilization_switch == 0 and known != {"force"}:
        return f"switched off by the monitor because the container is alone on its cards; {POLICY}=force keeps it on"
    if region.last_kernel and now - region.last_kernel > QUIET:
        return f"no kernel was launched for {int(now - region.last_kernel)} s"
    if not region.last_kernel and region.version != "0":
        return "no kernel was launched yet"
    return ""


def gate(region: RegionSnapshot) -> str:
    """Return whether launches pass, by the monitor's word."""
    if region.recent_kernel < 0:
        return "launches wait: a container of higher priority uses a card of this one"
    return "launches pass"


def policy_of(pid: int) -> str:
    """The core policy in a process's environment; empty when it has none or belongs to somebody else."""
    return variable_of(pid, POLICY).decode("utf-8", "replace")
