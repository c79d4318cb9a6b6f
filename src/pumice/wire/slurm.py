"""Slurm's words: what a job asks of the gres ``pumice``, what prologs are told, and the lines that a TaskProlog prints.

Sources: Slurm 22.05, slurm.conf(5) "PROLOG AND EPILOG SCRIPTS", squeue(1), and the Prolog and Epilog Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pumice.model.amount import MIB
from pumice.model.errors import BadInput

GRES, MEMORY, CORES = "pumice", "memory", "cores"
EXAMPLE: Final = "--gres=pumice:memory:3G,pumice:cores:50"
JOB_ID, JOB_USER, TASK_PID, NODE_NAME = "SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_TASK_PID", "SLURMD_NODENAME"
ASKED: Final = "%A|%b|%j"
"""The format for `squeue --format`: a job's number, the gres that it asks of each node, and its name."""
NUMBER: Final = "%A"
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


class Ask(NamedTuple):
    """A share that a job asks of each of its nodes: MiB, and percent of a card's compute (0: no limit)."""

    memory: int
    cores: int


class Job(NamedTuple):
    """A job as `squeue` tells of it. ``gres`` is the user's own text."""

    gres: str
    name: str


def parse_jobs(text: str) -> dict[str, Job]:
    """Read what `squeue --noheader --format` printed by ASKED. Lines of another form are left out."""
    found: dict[str, Job] = {}
    for line in text.splitlines():
        number, _, rest = line.strip().partition("|")
        gres, bar, name = rest.partition("|")  # no gres has a bar, and a name may have any
        if bar and number.isdigit():
            found.setdefault(number, Job(gres, name))
    return found


def parse_gres(text: str) -> Ask | None:
    """Read ``gres:pumice:memory:3G,gres:pumice:cores:50``; newer Slurm writes ``gres/`` in front. None where a job asks nothing
    of ours. Memory is counted in bytes. Raises BadInput."""
    asked: dict[str, int] = {}
    for word in text.split(","):
        name, *rest = re.split("[:=]", word.removeprefix("gres:").removeprefix("gres/"))
        if name != GRES:
            continue
        count = re.fullmatch("([0-9]{1,15})([KMGTP]?)", rest[1].upper()) if len(rest) == 2 else None
        if count is None or rest[0] not in (MEMORY, CORES):
            raise BadInput(f"--gres={word}: say of which how much, as in {EXAMPLE}")
        asked[rest[0]] = asked.get(rest[0], 0) + int(count[1]) * _UNITS[count[2]]
    if not asked:
        return None
    memory, cores = asked.get(MEMORY, 0), asked.get(CORES, 0)
    if memory < MIB:
        if not memory:
            raise BadInput(f"--gres={text}: it asks for no memory of the card; write how much, as in {EXAMPLE}")
        raise BadInput(f"--gres={text}: Slurm counts bytes, and {memory} are less than 1 MiB; write a unit, as in {EXAMPLE}")
    if cores > 100:
        raise BadInput(f"--gres={GRES}:{CORES}:{cores}: percent of the compute of one card, so at most 100")
    return Ask(-(-memory // MIB), cores)


def render_task(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the lines by which a TaskProlog makes one environment of a task the other. Raises BadInput."""
    lines = [f"unset {name}" for name in sorted(before.keys() - after.keys())]
    for name, value in sorted(after.items()):
        if before.get(name) != value:
            if "\n" in value:
                raise BadInput(f"{name} has more than one line, which Slurm cannot pass on; mend it where the job is submitted")
            lines.append(f"export {name}={value}")
    return "".join(f"{line}\n" for line in lines)


def render_words(lines: Iterable[str]) -> str:
    """Return the lines by which a TaskProlog writes something in front of its task's own output."""
    words = ("".join(letter if letter.isprintable() else "?" for letter in line) for line in lines)
    return "".join(f"print {line}\n" for line in words)
