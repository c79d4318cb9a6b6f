"""The answer for a container with NPUs (HAMi ascend-device-plugin)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.effects.vocabulary import MakeDirectory, NodeEffect, PatchNode
from pumice.model.hardware.npu import NpuChip
from pumice.node.device_list import Unit
from pumice.node.protocol import Answer, Mount
from pumice.ports.cards import CardFacts
from pumice.wire import names, variables
from pumice.wire.ascend_hami import RegisteredNpu, RuntimeNpu, handshake_key, register_key, render_npu_register
from pumice.wire.objects import Node
from pumice.wire.times import seconds

REPORT_EVERY: Final = 30.0
RING: Final = 4
"""Cards of a 910 that are linked with one another; dies of a 910C are all."""


@dataclass(frozen=True, slots=True)
class NpuSharing:
    """The sharing of one type of chips on this node. ``shares``: how many pods a card takes (0: as many as it has smallest
    templates). ``without``: cards that are not shared, by physical id or UUID."""

    chip: NpuChip
    soft: bool = False
    shares: int = 0
    without_indices: frozenset[int] = frozenset()
    without_uuids: frozenset[str] = frozenset()

    def takes(self, card: CardFacts) -> bool:
        return card.minor not in self.without_indices and card.uuid not in self.without_uuids

    @property
    def count(self) -> int:
        return self.shares or self.chip.shares


def registered(cards: Sequence[CardFacts], unhealthy: Mapping[str, str], sharing: NpuSharing) -> list[RegisteredNpu]:
    """The shared cards, numbered without gaps. The ring follows from the physical id, whatever cards are left out."""
    chip = sharing.chip
    return [
        RegisteredNpu(
            card.uuid, position, sharing.count, chip.memory, 100 if sharing.soft else chip.cores, chip.word,
            card.uuid not in unhealthy, ring=ring(card.minor, chip.word),
        )
        for position, card in enumerate(card for card in cards if sharing.takes(card))
    ]  # fmt: skip


def ring(physical: int, word: str) -> int | None:
    if not word.startswith("Ascend910"):
        return None
    return 0 if word == "Ascend910C" else max(0, physical) // RING


def units(cards: Sequence[CardFacts], unhealthy: Mapping[str, str], sharing: NpuSharing) -> list[Unit]:
    """``<UUID>-<i>``, each as well as its card."""
    shared = [card for card in cards if sharing.takes(card)]
    return [Unit(f"{card.uuid}-{i}", card.uuid not in unhealthy) for card in shared for i in range(sharing.count)]


def missing(node: Node, cards: Sequence[CardFacts], unhealthy: Mapping[str, str], sharing: NpuSharing) -> list[NodeEffect]:
    """The writes that make the node say what it has."""
    wanted = {
        register_key(sharing.chip.word): render_npu_register(registered(cards, unhealthy, sharing)),
        names.NODE_NPU_SOFT: str(sharing.soft).lower(),
    }
    lacking = {key: text for key, text in wanted.items() if node.metadata.annotations.get(key) != text}
    return [PatchNode(lacking)] if lacking else []


class Handshake:
    """HAMi's scheduler asks by it whether the plugin lives: whatever stands there is overwritten with every report."""

    def __init__(self, word: str, offset: float = 1.0) -> None:
        self._key, self._offset = handshake_key(word), offset
        self._written, self._text = float("-inf"), ""

    def due(self, node: Node, monotonic: float, stamp: str) -> list[NodeEffect]:
        """``stamp``: the time in UTC, as the plugin server has it."""
        found = node.metadata.annotations.get(self._key, "")
        if found == self._text and monotonic - self._written < REPORT_EVERY:
            return []
        local = time.localtime(seconds(stamp) + self._offset)
        self._written, self._text = monotonic, time.strftime("Reported_%Y.%m.%d %H:%M:%S", local)
        return [PatchNode({self._key: self._text})]


DRIVER_FILES: Final = (
    "/usr/local/bin/npu-smi", "/etc/ascend_install.info", "/usr/local/Ascend/driver/lib64/driver",
    "/usr/local/Ascend/driver/version.info",
)  # fmt: skip
SHARED: Final = "/usr/local/hami-shared-region"


@dataclass(frozen=True, slots=True)
class SoftPlaces:
    """Host folders of soft sharing: the library's, and the one with a folder for each container."""

    library: str = "/usr/local/hami-vnpu-core"
    hook: str = "/usr/local/hami-vnpu-core"


def hard(cards: Sequence[CardFacts], runtime: Mapping[str, RuntimeNpu]) -> Answer:
    """Whole cards, or a slice that the container runtime makes by the template's name."""
    env = {variables.ASCEND_VISIBLE_DEVICES: _physical(cards)}
    if template := next((t for card in cards if (t := runtime[card.uuid].template)), ""):
        env[variables.ASCEND_VNPU_SPECS] = template
    return Answer(env)


def soft(cards: Sequence[CardFacts], runtime: Mapping[str, RuntimeNpu], places: SoftPlaces, owner: str) -> Answer:
    """A share that the intercepting library keeps. ``owner``: pod UID and container name."""
    first = runtime[cards[0].uuid]
    own = f"{places.hook}/containers/{owner}"
    env = {
        variables.ASCEND_VISIBLE_DEVICES: _physical(cards),
        variables.NPU_MEM_QUOTA: str(first.memory),
        variables.NPU_GLOBAL_SHM_PATH: f"/hami-shared-region/{cards[0].minor}_global_registry",
        variables.NPU_LOCAL_SHM_PATH: "/hami-vnpu-shmem/vnpu_local_shmem",
    }
    if first.cores:
        env[variables.NPU_PRIORITY] = str(first.cores)
    mounts = (
        *(Mount(path, path, read_only=True) for path in DRIVER_FILES),
        Mount("/hami-vnpu-core", places.library, read_only=True),
        Mount("/etc/ld.so.preload", f"{places.library}/ld.so.preload", read_only=True),
        Mount("/hami-shared-region", SHARED),
        Mount("/hami-vnpu-shmem", own),
    )
    made = (MakeDirectory(SHARED, 0o777), MakeDirectory(own, 0o777, fresh=True))
    return Answer(env, mounts, directories=made, own=(own,))


def _physical(cards: Sequence[CardFacts]) -> str:
    return ",".join(str(card.minor) for card in cards)
