"""Our node side with schedulers of every release, our scheduler with plugins of every release (HAMi
volcano-vgpu-device-plugin pkg/plugin/vgpu).

What others wrote stands here as they wrote it; how others read is told by a few lines of ours.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.device_world import TinyLedger, device_settings, limits, pod_of, vgpu_node
from kit.node_objects import CARDS, NODE, A, B, allocator, container, gives, pod, pod_object

from pumice.devices.nvidia_vgpu.node.allocator import Handshake, register_annotation
from pumice.devices.nvidia_vgpu.node.inventory import share
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Fit
from pumice.devices.settings import Settings
from pumice.node.pods import NodePod
from pumice.node.protocol import Serve
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import convert

OURS = register_annotation(share(CARDS, Sharing()))
WRITTEN = {
    "plugin 1.9.4": f"{A},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true:{B},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true:",
    "plugin 1.12.0": f"{A},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true,hami-core:"
                     f"{B},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true,hami-core:",
    "ours": OURS,
}  # fmt: skip
"""The register annotation of one machine (Volcano pkg/scheduler/framework/statement.go, Volcano pkg/cli)."""


def five_fields(text: str) -> list[tuple[str, int, int, str, bool]]:
    """As Volcano 1.9 to 1.11 read it: five fields, more are passed over."""
    records = [record.split(",") for record in text.split(":") if "," in record]
    return [(r[0], int(r[1]), int(r[2]), r[3], r[4] == "true") for r in records]


def six_fields(text: str) -> list[tuple[str, int, int, str, bool, str]] | None:
    """As Volcano 1.12 and later read it: fewer than six drop the node."""
    records = [record.split(",") for record in text.split(":") if "," in record]
    if any(len(record) < 6 for record in records):
        return None
    return [(r[0], int(r[1]), int(r[2]), r[3], r[4] == "true", r[5]) for r in records]


def test_every_scheduler_reads_our_cards() -> None:
    cards = [(uuid, 10, 32768, "NVIDIA-Tesla V100-SXM2-32GB", True) for uuid in (A, B)]
    assert WRITTEN["plugin 1.12.0"] == OURS
    assert five_fields(OURS) == cards
    assert six_fields(OURS) == [(*one, "hami-core") for one in cards]


def handshake(value: str | None, now: float) -> tuple[str | None, bool]:
    """A scheduler up to 1.14.2 looks at the node: what it writes, and whether the node is usable. Its clock runs in seconds."""
    if value is None or "Deleted" in value:
        return None, False
    if "Requesting" in value:
        late = now > float(value.partition("_")[2]) + 60
        return (f"Deleted_{now}", False) if late else (None, True)
    return f"Requesting_{now}", True


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_a_scheduler_with_the_handshake_never_loses_the_node(mode: str) -> None:
    ours, value = Handshake(mode), None
    usable = []
    for now in range(0, 3600, 5):
        if now % 10 == 0:  # as often as the plugin looks
            effect: Any = ours.answer(value, float(now), "2026-08-20T10:00:00Z")
            value = effect.annotations[names.NODE_VGPU_HANDSHAKE] if effect else value
        written, fit = handshake(value, float(now))
        usable.append(fit)
        value = written or value
    assert all(usable)


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_scheduler_without_it_finds_its_three_resources_and_is_not_bothered(mode: str) -> None:
    ours = Handshake(mode)
    written = [ours.answer("Reported x", float(now), "t") for now in range(0, 3600, 10)]
    assert not any(written)


@pytest.mark.parametrize("plugin", WRITTEN)
def test_our_scheduler_places_by_the_cards_of_every_plugin(plugin: str) -> None:
    settings = device_settings(short_entries=True) if plugin == "plugin 1.9.4" else Settings()
    ledger = TinyLedger(NvidiaVgpu(parse_device_config(""), settings))
    ledger.add_node(vgpu_node("n1", WRITTEN[plugin]))
    requested = pod_of("p", limits(2, 3000, 50))
    assert isinstance(ledger.try_pod(requested, "n1"), Fit)
    ledger.place(requested, "n1")
    assert sorted(ledger.ids(requested).split(":")) == ["", f"{A},NVIDIA,3000,50", f"{B},NVIDIA,3000,50"]


def test_a_pod_that_an_older_scheduler_has_patched_waits_for_its_binding() -> None:
    """Volcano before 1.16 patches the pod first, and may fail to bind it."""
    early = pod_object("early", gives(A), container("train", 1, 3000, 50), node="")
    early["spec"]["nodeName"] = ""
    early["metadata"]["annotations"][names.VGPU_NODE] = NODE
    desk, bound = allocator(), pod("bound", gives(B), time=1760000009)
    decision = desk.allocate([convert(NodePod, early), bound], ["x"])
    assert isinstance(decision, Serve)
    assert decision.pod.metadata.name == "bound"


def served_by_upstream(annotation: str, requested: int) -> tuple[str, str] | None:
    """Return the reading of a pod's ``devices-to-allocate`` by Volcano's plugin from 1.12 on: the cards, and what it leaves."""
    segments = annotation.split(";")
    if sum(part.count(",") > 0 for segment in segments for part in segment.split(":")) != requested:
        return None
    at = next(i for i, segment in enumerate(segments) if "," in segment)
    cards = ",".join(part.split(",")[0] for part in segments[at].split(":") if part)
    return cards, ";".join("" if i == at else segment for i, segment in enumerate(segments))


@pytest.mark.parametrize(("cards", "named"), [(1, 1), (2, 2)])
def test_upstreams_plugin_serves_what_our_scheduler_writes(cards: int, named: int) -> None:
    ledger = TinyLedger(NvidiaVgpu(parse_device_config(""), Settings()))
    ledger.add_node(vgpu_node("n1", OURS))
    requested = pod_of("p", limits(cards, 3000, 50))
    ledger.place(requested, "n1")
    served = served_by_upstream(ledger.ids(requested), cards)
    assert served is not None
    assert len(served[0].split(",")) == named
    assert served[1] == ""
