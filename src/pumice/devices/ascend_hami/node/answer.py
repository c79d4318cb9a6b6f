"""The answer for a container with NPUs (HAMi ascend-device-plugin)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.effects.vocabulary import MakeDirectory
from pumice.node.answer import Answer, Mount
from pumice.ports.cards import CardFacts
from pumice.wire import variables
from pumice.wire.ascend_hami import RuntimeNpu

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
