"""``pumice vgpu``: look into the shared region of a container."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import asdict
from rich.console import Console
from rich.markup import escape

from pumice.adapters.region import read_region
from pumice.adapters.region.extension import Extension, live_slots, read_extension
from pumice.cli import flags
from pumice.cli.completion import SHARES
from pumice.cli.local_view import places
from pumice.cli.output import Output, document
from pumice.cli.tables import bar
from pumice.local.shares import DeviceStory, find, gate, policy_of, stories
from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.ports.region import BadRegion, DeviceUse, RegionSnapshot

MANY = 256
"""Regions of one folder that are told of."""
STATES = {1: "running", 2: "suspended"}

app = flags.App(group=True, help="Look into the shared region of a program or container.",
                  epilog="Example: pumice vgpu status r1")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """One region and what is known about its processes."""

    path: Path
    region: RegionSnapshot
    extension: Extension | None
    alive: dict[int, int]
    devices: list[DeviceStory]


@app.command(epilog="Examples: pumice vgpu status r1;  pumice vgpu status $HOOK_PATH/vgpu/containers -o json")
def status(
    what: Annotated[str, flags.Argument(metavar="FILE|DIR|ID", help="A region, a folder with regions in it, or the id or a pid "
                                        "of a program of `pumice run`."), SHARES],
    output: Annotated[Output, flags.Option("--output", "-o", help="How to print.")] = Output.TEXT,
) -> None:
    """Explain a region: limits, use, and why the limiter is idle."""
    path = _region(what)
    looks, troubles = [], []
    for file in _files(path):
        try:
            looks.append(look(file))
        except BadRegion as error:
            troubles.append(f"{file}: no shared region of libvgpu" if error.early and file.exists() else str(error))
    if not looks:
        raise BadInput(troubles[0] if troubles else f"{path}: no region in this folder (a file named *.cache)")
    if output is Output.JSON:
        print(json.dumps([_json(found) for found in looks], indent=1) if path.is_dir() else document(_json(looks[0])))
    else:
        console = Console(soft_wrap=True, highlight=False)
        for found in looks:
            for line in _lines(found):
                console.print(line)
    if troubles:
        raise BadInput("; ".join(troubles))


def look(path: Path, now: float | None = None) -> Look:
    """Everything that can be known about one region. Raises BadRegion."""
    region, extension, alive = read_region(path), read_extension(path), live_slots(path)
    policies = {pid: policy_of(pid) for pid in alive.values()}
    budgets = extension.devices if extension else ()
    return Look(path, region, extension, alive, stories(region, alive, budgets, policies, time.time() if now is None else now))


def _region(what: str) -> Path:
    """The file or folder of that name, else the region of the program of `pumice run` that it names."""
    if re.fullmatch(r"r?[0-9]+", what) and not Path(what).exists():
        return Path(find(places(None), what)[0].region)
    return Path(what)


def _files(path: Path) -> list[Path]:
    """The region itself, the regions of a folder, or those of the folders in it."""
    if not path.is_dir():
        return [path]
    try:
        found = islice((p for pattern in ("*.cache", "*/*.cache") for p in path.glob(pattern)), MANY)
        return sorted(p for p in found if "libvgpu.so" not in p.name)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _lines(found: Look) -> Iterator[str]:
    region = found.region
    ours = ", with Pumice's extension" if found.extension else ""
    priority = "0 (high)" if region.priority == 0 else "1 (low)"
    yield f"[bold]{escape(str(found.path))}[/bold]: layout {region.version}{ours}"
    yield f"  priority {priority}; {gate(region)}"
    if not found.devices:
        yield "  no process has used a card yet"
    touched = [story for story in found.devices if story.use.total] or found.devices
    for story in touched:
        yield from _device(story)
    if len(touched) < len(found.devices):
        yield f"  {len(found.devices) - len(touched)} more visible, not in use"
    if found.extension and found.extension.waits.count:
        w = found.extension.waits
        longest, late = f"the longest of {w.longest_ns / 1e6:.1f} ms", f"{w.late} of them given up" if w.late else "none given up"
        yield f"  {w.count} waits for locks so far, {longest}, {late}"
    for process in region.processes:
        allocated = sum(process.use.values(), DeviceUse())
        state = STATES.get(process.status, f"status {process.status}") if process.slot in found.alive else "dead, not yet cleared"
        yield f"  slot {process.slot}  pid {process.pid}  {_mib(allocated.total)} MiB  {allocated.sm} % of the SMs  {state}"


def _device(story: DeviceStory) -> Iterator[str]:
    device, use = story.device, story.use
    yield f"  card {device.index}  {device.uuid}"
    parts = f"(contexts {_mib(use.context)}, modules {_mib(use.module)}, data {_mib(use.data)})"
    if device.limit:
        yield f"    memory  {bar(use.total, device.limit)} {_mib(use.total)} of {_mib(device.limit)} MiB {parts}"
    else:
        yield f"    memory  {_mib(use.total)} MiB, no limit {parts}"
    limited = 0 < device.sm_limit < 100
    share = f"{bar(use.sm, device.sm_limit)} {use.sm} of {device.sm_limit} %" if limited else f"{use.sm} %"
    yield f"    cores   {share}; limiter {f'idle: {story.idle}' if story.idle else 'at work'}"
    if story.budget is not None and story.budget.launches:
        b = story.budget
        yield (
            f"    limiter so far: {b.launches} launches, {b.charged / 1e9:.2f} s of GPU time charged, "
            f"{b.throttled / 1e9:.2f} s waited, {b.balance / 1e6:+.1f} ms to spend now"
        )


def _mib(count: int) -> int:
    return -(-count // MIB)


def _json(found: Look) -> dict[str, Any]:
    region = found.region
    return {
        "path": str(found.path),
        "layout": region.version,
        "extension": found.extension is not None,
        "lockWaits": asdict(found.extension.waits) if found.extension else None,
        "priority": region.priority,
        "blocked": region.recent_kernel < 0,
        "recentKernel": region.recent_kernel,
        "utilizationSwitch": region.utilization_switch,
        "lastKernel": region.last_kernel or None,
        "devices": [
            {
                "index": story.device.index,
                "uuid": story.device.uuid,
                "memoryLimitBytes": story.device.limit or None,
                "coresLimitPercent": story.device.sm_limit if 0 < story.device.sm_limit < 100 else None,
                "used": asdict(story.use),
                "limiter": "idle" if story.idle else "at work",
                "why": story.idle or None,
                "budget": asdict(story.budget) if story.budget else None,
            }
            for story in found.devices
        ],
        "processes": [
            {
                "slot": process.slot,
                "pid": process.pid,
                "hostPid": process.host_pid or None,
                "alive": process.slot in found.alive,
                "status": STATES.get(process.status, str(process.status)),
                "used": {str(index): asdict(use) for index, use in process.use.items()},
            }
            for process in region.processes
        ],
    }
