"""Judges of monitors, by their pages, by regions and limits pages; they import no decision."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kit.fake_cluster import Json
from tests.property.plane import judge

RECENT_AT = 2008904
"""Where a region has what a monitor says of launches: below 0 they wait (HAMi-core multiprocess_memory_limit.h)."""
HELD_AT = 2080
"""Where a limits page has the per cent that a container that is held back keeps (native/vgpu/include/vgpu/limits_page.h)."""
LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
LIMIT, CORES, USED = "hami_vgpu_memory_limit_bytes", "pumice_container_core_limit_percent", "hami_vgpu_memory_used_bytes"
FIRST = {"name": "CUDA_TASK_PRIORITY", "value": "0"}
"""The variable by which a container asks to go before others."""


def cards_of(one: Any) -> list[str]:
    """Return the cards of which a container has a share with a limits page."""
    if judge.PAGE not in one.seen.mounts:
        return []
    return [uuid for uuid, memory, _ in judge.allowed(Path(one.seen.mounts[judge.PAGE]).read_bytes()) if memory]


def region_of(one: Any) -> Path:
    """Return where its region lies on the host."""
    region = Path(judge.HEAD.unpack_from(Path(one.seen.mounts[judge.PAGE]).read_bytes())[-1].rstrip(b"\0").decode())
    own = one.seen.mounts.get(str(region))  # else that of before, in the folder: its kubelet has lost what it was answered
    return Path(own) if own is not None else Path(one.seen.mounts[str(region.parent)]) / region.name


def word_of(region: Path) -> int:
    with region.open("rb") as file:
        file.seek(RECENT_AT)
        return int(struct.unpack("<i", file.read(4))[0])


def _key(one: Any) -> str:
    return f"{one.pod['metadata']['namespace']}/{one.pod['metadata']['name']}/{one.container}"


def _goes_before(one: Any, other: Any) -> bool:
    """Return whether the launches of ``other`` wait for those of ``one``."""
    container = next(c for c in one.pod["spec"]["containers"] if c["name"] == one.container)
    mine, its = (each.pod["spec"].get("priority", 0) for each in (one, other))
    return FIRST in container.get("env", ()) and mine > max(its, 0)


def held_for_nobody(region: Path, there: Iterable[Any]) -> list[str]:
    """Return a sentence if a container is held back for nobody. ``there``: those that run, and that ran a moment ago."""
    cards = [(one, set(one.seen.env.get("NVIDIA_VISIBLE_DEVICES", "").split(",")))
             for one in there if judge.PAGE in one.seen.mounts]  # fmt: skip
    mine = [(one, uuids) for one, uuids in cards if str(region) in one.seen.mounts.values()]
    if not mine or any(uuids & others and _goes_before(other, one) for one, uuids in mine for other, others in cards):
        return []
    return [f"{_key(mine[0][0])} is held back, and nobody who goes before it is on its cards"]


def still_held(running: Iterable[Any]) -> list[str]:
    """Return a sentence for each container that is held back although no program launches anything."""
    found = []
    for one in running:
        if cards_of(one):
            region, page = region_of(one), Path(one.seen.mounts[judge.PAGE]).read_bytes()
            held = struct.unpack_from("<I", page, HELD_AT)[0]
            if held or (region.exists() and word_of(region) < 0):
                found.append(f"{_key(one)} is held back ({held} per cent), and nobody works")
    return found


def reported_wrongly(page: str, running: Iterable[Any], given: Mapping[str, Json], used: int) -> list[str]:
    """Return a sentence for each container of which a monitor tells another grant or use than there is. ``used``: bytes that each
    program has of each of its cards."""
    told = _told(page)
    found = []
    for one in running:
        bound = given.get(one.pod["metadata"]["uid"])
        if bound is None or not judge.holds(bound, one.container):
            continue
        due = judge.granted(bound, one.container)
        name = _key(one)
        says = sorted((uuid, int(has.get(LIMIT, -1)) >> 20, int(has.get(CORES, -1))) for (uuid, _), has in told[name].items())
        if says != sorted((uuid.partition("[")[0], memory, cores) for uuid, memory, cores in due):
            found.append(f"{name} was granted {due}, and the monitor tells {says}")
        elif cards_of(one) and any(has.get(USED, 0) != used for has in told[name].values()):
            found.append(f"{name} uses {used} bytes of each card, and the monitor tells {dict(told[name])}")
    return found


def told_of_nobody(page: str, alive: set[str]) -> list[str]:
    """Return a sentence for each container of a pod that is not there any more. ``alive``: keys of pods that have not ended."""
    return [f"the monitor tells of {name}, whose pod has ended" for name in _told(page) if name.rpartition("/")[0] not in alive]


def _told(page: str) -> dict[str, dict[tuple[str, str], dict[str, float]]]:
    """Return the figures of each container's cards, by UUID and number: it may have two slices of one."""
    found: dict[str, dict[tuple[str, str], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in page.splitlines():
        if (match := LINE.fullmatch(line)) is not None and match[1] in (LIMIT, CORES, USED):
            labels = dict(LABEL.findall(match[2]))
            name = f"{labels['namespace']}/{labels['pod']}/{labels['container']}"
            found[name][labels["device_uuid"], labels["vdevice_index"]][match[1]] = float(match[3])
    return found
