"""Usage of containers, read from their processes, as a kubelet's ``/stats/summary`` tells it (Kubernetes "Node metrics data")."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.ports.clock import Clock
from pumice.wire.times import stamp
from pumice_lab.runtime.proc import MARK, pids

Json = dict[str, Any]
SHORTEST, LONGEST = 0.25, 60.0
"""Seconds between the two looks that make a rate."""
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Look:
    """All processes of a container together: seconds of processor time so far, bytes in memory; when it was looked."""

    cpu: float = 0.0
    memory: int = 0
    at: float = 0.0


def look(idents: Iterable[str], at: float) -> dict[str, Look]:
    """By the marker in the environment of each process."""
    marks = {f"{MARK}={ident}".encode(): ident for ident in idents}
    found = {ident: Look(at=at) for ident in marks.values()}
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                ident = next((marks[word] for word in environ.read().split(b"\0") if word in marks), None)
            if ident is None:
                continue
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()  # from the third on (proc(5)): names may hold blanks
        except OSError:  # it has ended, or is somebody else's
            continue
        cpu, memory = (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE
        found[ident] = Look(found[ident].cpu + cpu, found[ident].memory + memory, at)
    return found


class Usage:
    """Of one node; it remembers its last look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, Look] = {}

    async def summary(self, node: str, pods: Mapping[str, tuple[Json, Mapping[str, str]]]) -> Json:
        """``pods``: uid -> its metadata, and the ids of its running containers by name."""
        idents = [ident for _, containers in pods.values() for ident in containers.values()]
        before = self._last
        now = self._clock.monotonic()
        if any(ident not in before or not SHORTEST <= now - before[ident].at <= LONGEST for ident in idents):
            before = await asyncio.to_thread(look, idents, now)
            await self._clock.sleep(SHORTEST)
        after = self._last = await asyncio.to_thread(look, idents, self._clock.monotonic())
        when = stamp(self._clock.now())
        shown = [
            {"podRef": {"name": metadata["name"], "namespace": metadata.get("namespace", ""), "uid": uid},
             "containers": [{"name": name, **_used([ident], before, after, when)} for name, ident in containers.items()]}
            for uid, (metadata, containers) in pods.items()
        ]  # fmt: skip
        return {"node": {"nodeName": node, **_used(idents, before, after, when)}, "pods": shown}


def _used(idents: Iterable[str], before: Mapping[str, Look], after: Mapping[str, Look], when: str) -> Json:
    rate = memory = 0.0
    for ident in idents:
        old, new = before.get(ident, after[ident]), after[ident]
        rate += max(0.0, new.cpu - old.cpu) / max(new.at - old.at, 0.001)
        memory += new.memory
    return {"cpu": {"time": when, "usageNanoCores": int(rate * 1e9)}, "memory": {"time": when, "workingSetBytes": int(memory)}}
