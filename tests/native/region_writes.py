"""Writes into a container's region as a tenant makes them: random ones anywhere, and aimed ones at what the library goes by."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Iterator
from pathlib import Path

HEAD, LIMITS, SLOTS, SLOT_BYTES, USED, MARK = 0, 1600, 1856, 1960, 8, 2_008_896
EXTENSION, TURNS, EXT_DEVICES, EXT_SLOTS, EXT_SLOT_BYTES = 2_011_136, 112, 256, 4096, 320
JOINTS = EXTENSION + 331_776
WHOLE = JOINTS + 131_072 + 262_144
FAIR, FAIR_BYTES = JOINTS + 131_072, 256
LIVELY = 16
"""Slots that a test's programs have."""


def aimed(rng: random.Random) -> tuple[int, int]:
    """A place that something is decided by, and how many bytes it has."""
    slot = rng.randrange(LIVELY)
    return rng.choice(
        [
            (HEAD, 4), (HEAD + 4, 8), (56, 8), (64, 96), (LIMITS, 8), (MARK, 4), (MARK + 4, 12),
            (SLOTS + slot * SLOT_BYTES, 4), (SLOTS + slot * SLOT_BYTES, SLOT_BYTES),
            (SLOTS + slot * SLOT_BYTES + USED, 40), (SLOTS + slot * SLOT_BYTES + 1032, 8), (SLOTS + slot * SLOT_BYTES + 1928, 16),
            (EXTENSION, 4), (EXTENSION, 16), (EXTENSION + TURNS, 4), (EXTENSION + EXT_DEVICES + 80, 12),
            (EXTENSION + EXT_SLOTS + slot * EXT_SLOT_BYTES, 32), (EXTENSION + EXT_SLOTS + slot * EXT_SLOT_BYTES + 32, 16),
            (JOINTS, 4), (JOINTS + 4, 4), (JOINTS + 64 + 64 * rng.randrange(64), 64),
        ]
    )  # fmt: skip


def of_time(rng: random.Random) -> tuple[int, int]:
    """Return a place that tells of GPU time or of who may launch, and how many bytes are written there."""
    slot = rng.randrange(8)
    at = rng.choice(
        [
            EXTENSION + EXT_DEVICES + 4 * rng.randrange(30),
            EXTENSION + EXT_SLOTS + slot * EXT_SLOT_BYTES + 288, EXTENSION + EXT_SLOTS + slot * EXT_SLOT_BYTES + 296,
            FAIR + slot * FAIR_BYTES, FAIR + slot * FAIR_BYTES + 8, MARK, MARK + 4, MARK + 8,
            SLOTS + slot * SLOT_BYTES + 1928, EXTENSION + 16,
        ]
    )  # fmt: skip
    return at, rng.choice((4, 8))


def content(rng: random.Random, count: int) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(count)
    if kind == 1:
        return b"\xff" * count
    if kind == 2:
        return rng.choice((1, 2, 17, 1 << 20, 1 << 31)).to_bytes(4, "little").ljust(count, b"\0")[:count]
    return rng.randbytes(count)


def writes(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Half of them anywhere, half of them at what matters."""
    while True:
        at, count = aimed(rng) if rng.random() < 0.5 else (rng.randrange(WHOLE - 64), rng.choice((1, 4, 8, 64)))
        yield at, content(rng, count)


def writes_of_time(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Nothing, all ones, anything, or a time of about now in nanoseconds."""
    while True:
        at, count = of_time(rng)
        about_now = time.monotonic_ns() + rng.randrange(-(10**10), 10**10)
        yield at, about_now.to_bytes(8, "little", signed=True)[:count] if rng.random() < 0.5 else content(rng, count)


def damage_time(region: Path, rng: random.Random, count: int) -> None:
    """Write by a mapping, as a program of the container would: some hundred thousand a second."""
    with region.open("r+b") as file, mmap.mmap(file.fileno(), WHOLE) as memory:
        for _, (at, bytes_) in zip(range(count), writes_of_time(rng), strict=False):
            memory[at : at + len(bytes_)] = bytes_


def damage(region: Path, rng: random.Random, count: int) -> None:
    """Never beyond the end: whoever makes the file longer or shorter does no more than that."""
    with region.open("r+b", buffering=0) as file:
        for _, (at, bytes_) in zip(range(count), writes(rng), strict=False):
            file.seek(at)
            file.write(bytes_)
