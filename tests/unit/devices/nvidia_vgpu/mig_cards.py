"""One node with cards in MIG mode, and what asks of so much memory find there one after the other."""

from __future__ import annotations

from kit.device_world import TinyLedger, device_settings, limits, pod_of, vgpu_node

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Fit
from pumice.wire.device_config_text import parse_device_config


def node_of(*cards: str, config: str = "", **settings: object) -> TinyLedger:
    chosen = device_settings(policy="binpack", **settings)  # type: ignore[arg-type]
    ledger = TinyLedger(NvidiaVgpu(parse_device_config(config), chosen))
    ledger.add_node(vgpu_node("n1", *cards))
    return ledger


def placed(ledger: TinyLedger, *wanted: int) -> list[str]:
    """The slot of each; ``-`` for one that found none."""
    found = []
    for number, memory in enumerate(wanted):
        pod = pod_of(f"p{number}-{len(ledger.allocated)}", limits(1, memory))
        found.append(ledger.ids(pod).split(",")[0] if isinstance(ledger.place(pod, "n1"), Fit) else "-")
    return found
