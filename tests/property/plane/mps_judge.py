"""Judges of cards shared by MPS, by the environment and mounts of containers and what their servers were told; they import no
decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PIPES, MEMORY, THREADS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
NOTHING = (1, 1)
"""The least to which a server may be bounded, in MiB and per cent."""


def allowed(seen: Any) -> list[tuple[str, int, int]]:
    """Return what a container may have of its card: MiB, and per cent of its compute, 0 for all that is left."""
    memory = seen.env.get(MEMORY, "0=0M").removeprefix("0=").removesuffix("M")
    return [(seen.env.get("NVIDIA_VISIBLE_DEVICES", ""), int(memory), int(seen.env.get(THREADS, 0)))]


def card_of(one: Any, pipes: Path) -> str:
    """Return the card whose daemon a container reaches; empty where it has no share by MPS."""
    inside = one.seen.env.get(PIPES, "")
    if not inside:
        return ""
    folder = Path(one.seen.mounts.get(inside, "/")).relative_to(pipes).parts[0]
    card = str(one.seen.env["NVIDIA_VISIBLE_DEVICES"])
    return card if card.startswith(folder) else f"the card of {folder}"


def bounded_wrongly(one: Any, bounds: tuple[int, int]) -> list[str]:
    """Return a sentence if a server gives a program that begins less than it was granted, or bounds nobody."""
    [(card, memory, percent)] = allowed(one.seen)
    if memory <= bounds[0] and (percent or 100) <= bounds[1] <= 100 and bounds[0] < 1 << 40:
        return []
    return [f"{one.pod['metadata']['name']}/{one.container} may have {memory} MiB and {percent} per cent of {card}, and its "
            f"server gives {bounds}"]  # fmt: skip


def at_rest(bounds: Mapping[str, tuple[int, int]], cards: Iterable[str], running: Iterable[Any]) -> list[str]:
    """Return a sentence for each card without a daemon, and for each that is bounded to something else than the widest of what
    those who run there were granted."""
    found = []
    shares = [share for one in running if PIPES in one.seen.env for share in allowed(one.seen)]
    for card in cards:
        mine = [(memory, percent or 100) for uuid, memory, percent in shares if uuid == card]
        widest = (max(memory for memory, _ in mine), max(percent for _, percent in mine)) if mine else NOTHING
        if bounds.get(card) != widest:
            found.append(f"card {card} is bounded to {bounds.get(card)}, and {widest} is the widest of what runs there")
    return found
