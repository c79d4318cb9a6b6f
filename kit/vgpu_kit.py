"""Running programs under libvgpu on an emulated machine: building, environments, regions read from outside."""

from __future__ import annotations

import json
import os
import re
import runpy
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kit import native_build
from kit.native_build import NATIVE
from pumice_lab import machine

LIBRARY = NATIVE / "build/vgpu/libvgpu.so"
PROGRAMS = NATIVE / "build/vgpu/programs"
CHILDREN = Path(__file__).parents[1] / "tests/native/children"
FIGURES = tuple(runpy.run_path(str(CHILDREN / "figures.py"))["WAYS"])
"""The ways in which programs ask what a card has."""
MIB = 1 << 20


@dataclass(frozen=True)
class Mix:
    """Paths to device memory that programs/mill takes at once, how much a request may be, and the limit of a dozen processes."""

    paths: str
    largest: int = 300 * MIB
    limit: int = 8000 * MIB


MIXES = (
    Mix(
        "linear managed pitched array mipmapped physical multicast stream-ordered own_pool graph heap context green exported "
        "described passed_on"
    ),
    Mix("managed physical multicast stream-ordered own_pool graph module heap context green"),
    Mix("linear pitched array mipmapped module"),
    Mix("array mipmapped heap context", 30 * MIB, 10000 * MIB),
    Mix("stream-ordered own_pool context exported described passed_on", 30 * MIB, 10000 * MIB),
)
"""In the last two it is contexts that meet the limit: many large requests leave no room for any."""
DEVICES, SLOTS = 16, 1024


def on_a_switch(cards: str) -> machine.MachineModel:
    """A machine of which every card has its links to one switch."""
    model = machine.machine_of(cards)
    return replace(model, cards=tuple(replace(card, nvlinks=(-1,) * 12) for card in model.cards))


def build() -> None:
    """Builds the library and the C programs."""
    native_build.build("vgpu", "vgpu-programs")


@dataclass(frozen=True)
class Hook:
    name: str
    kind: str
    since: int
    library: str


@cache
def hooks() -> tuple[Hook, ...]:
    """The declarative table of the library, read as text."""
    rows = re.findall(r"^HOOK\((\w+), (\w+), (\w+), (\d+),", (NATIVE / "vgpu/hooks.def").read_text(), re.M)
    return tuple(Hook(name, kind, int(since), library) for library, name, kind, since in rows)


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass
class Container:
    """One container's environment on an emulated machine: a region of its own, limits, the preload."""

    machine: Path
    directory: Path
    limits: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""  # "driver-11080": an older driver of the emulated machine

    @property
    def region(self) -> Path:
        return self.directory / "container.cache"

    def environment(self, **more: str) -> dict[str, str]:
        libraries = machine.library_dir()
        path = f"{libraries / self.driver}:{libraries}" if self.driver else str(libraries)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "LD_LIBRARY_PATH": path,
            "LD_PRELOAD": str(LIBRARY),
            "PUMICE_MACHINE": str(self.machine),
            "PUMICE_VGPU_LOCK_DIRECTORY": str(self.directory),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
            **self.limits,
            **more,
        }

    def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(word) for word in command],
            env={name: value for name, value in self.environment(**more).items() if value != "<unset>"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str | Path, timeout: float = 60, **more: str) -> Ran:
        process = self.start(*command, **more)
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)

    def child(self, script: str, *arguments: str, **more: str) -> Ran:
        return self.run(*python(script, *arguments), **more)


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(CHILDREN / script), *arguments]


@dataclass(frozen=True)
class Slot:
    index: int
    pid: int
    status: int
    used: tuple[tuple[int, ...], ...]  # per device: context, module, data, offset, total
    sm_util: tuple[int, ...]
    raw: bytes


@dataclass(frozen=True)
class Region:
    """A region decoded with the formats that the ecosystem's monitors use (HAMi-core
    src/multiprocess/multiprocess_memory_limit.h)."""

    magic: int
    version: tuple[int, int]
    device_num: int
    uuids: tuple[bytes, ...]
    limit: tuple[int, ...]
    sm_limit: tuple[int, ...]
    proc_num: int
    utilization_switch: int
    recent_kernel: int
    priority: int
    last_kernel_time: int
    size: int
    slots: tuple[Slot, ...]

    def total(self, device: int = 0) -> int:
        return sum(slot.used[device][4] for slot in self.slots)

    @property
    def live(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.pid)


_HEADER, _SLOT, _TRAILER = (
    struct.Struct("<iIIiQ32sQ"),
    struct.Struct("<ii" + "5Q24x" * 16 + "16Q" + "3Q24x" * 16 + "i4xQ16x"),
    struct.Struct("<iiiiQ32s"),
)


def read_region(path: Path) -> Region:
    data = path.read_bytes()
    magic, major, minor, _, _, _, device_num = _HEADER.unpack_from(data, 0)
    uuids = tuple(data[64 + 96 * i : 64 + 96 * (i + 1)] for i in range(DEVICES))
    limits = struct.unpack_from("<16Q16Q", data, 1600)
    proc_num, switch, recent, priority, last, _ = _TRAILER.unpack_from(data, 1856 + SLOTS * _SLOT.size)
    slots = []
    for index in range(SLOTS):
        raw = data[1856 + _SLOT.size * index : 1856 + _SLOT.size * (index + 1)]
        if any(raw):
            fields = _SLOT.unpack(raw)
            used = tuple(tuple(fields[2 + 5 * d : 7 + 5 * d]) for d in range(DEVICES))
            util = tuple(fields[2 + 80 + 16 + 3 * d + 2] for d in range(DEVICES))
            slots.append(Slot(index, fields[0], fields[-2], used, util, raw))
    return Region(
        magic,
        (major, minor),
        device_num,
        uuids,
        limits[:16],
        limits[16:],
        proc_num,
        switch,
        recent,
        priority,
        last,
        len(data),
        tuple(slots),
    )


def patch_region(path: Path, offset: int, form: str, value: int) -> None:
    """Writes one field as a monitor does, into the live file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(form, value))


LIMIT, SM_LIMIT = 1600, 1728
