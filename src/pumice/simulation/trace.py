"""The public trace of a cluster that shares GPUs (openb: Alibaba's, published with FGD, USENIX ATC 2023), as two CSV files.

One file lists nodes (``sn,cpu_milli,memory_mib,gpu,model``), one pods (``name,cpu_milli,memory_mib,num_gpu,gpu_milli`` and more).
The memory of a card stands for its thousandths: a card has 1,000, and a share of 470 thousandths asks for 470.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from pumice.model.errors import BadInput
from pumice.simulation import manifests
from pumice.simulation.manifests import Json
from pumice.wire import names

THOUSANDTHS = 1000
MOST_CARDS = 1000
"""The most cards of a node."""
WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
NODES, PODS = ("sn", "cpu_milli", "memory_mib", "gpu", "model"), ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class Task(NamedTuple):
    """A pod of the trace. ``runs``: the seconds from its start to its end; infinity where the trace has no times."""

    name: str
    template: Json
    thousandths: int
    arrives: float = 0.0
    runs: float = inf
    models: tuple[str, ...] = ()
    """Of the cards, where only these will do."""


def lists_nodes(text: str) -> bool:
    """Return whether the file lists nodes."""
    return text.lstrip("\ufeff").startswith(NODES[0] + ",")


def nodes_of(text: str, file: str) -> list[Json]:
    """The nodes of a trace. Raises BadInput with the line of what cannot be."""
    return [
        manifests.node(row.name("sn"), cpu=f"{row.whole('cpu_milli')}m", memory=f"{row.whole('memory_mib')}Mi",
                       model=row.name("model", optional=True),
                       cards=row.whole("gpu", MOST_CARDS), mib=THOUSANDTHS, shares=THOUSANDTHS, pods=1000)
        for row in _rows(text, file, NODES)
    ]  # fmt: skip


def tasks_of(text: str, file: str) -> list[Task]:
    """The pods of a trace. Pods of one shape have one template. Raises BadInput with the line of what cannot be."""
    templates: dict[tuple[object, ...], Json] = {}
    found: list[Task] = []
    for row in _rows(text, file, PODS):
        number, share = row.whole("num_gpu"), row.whole("gpu_milli")
        if share > THOUSANDTHS or (number > 1 and share < THOUSANDTHS):
            raise row.error(f"gpu_milli {share}: of one card at most {THOUSANDTHS}, of several {THOUSANDTHS} each")
        models = tuple(filter(None, row.get("gpu_spec", "").split("|")))
        shape = (row.whole("cpu_milli"), row.whole("memory_mib"), number, share, models)
        if shape not in templates:
            asked = {"cpu": f"{shape[0]}m", "memory": f"{shape[1]}Mi"}
            if number:
                asked |= {names.VGPU_NUMBER: str(number), names.VGPU_MEMORY: str(share)}
            templates[shape] = manifests.pod(asked, models=models)
        arrives, runs = 0, inf
        if row.get("creation_time"):
            arrives = row.whole("creation_time")
            started = row.whole("scheduled_time") if row.get("scheduled_time") else arrives
            runs = float(row.whole("deletion_time") - started) if row.get("deletion_time") else inf
            if runs < 0:
                raise row.error(f"deletion_time {row['deletion_time']} is before its start at {started}")
        found.append(Task(row.name("name"), templates[shape], number * share, float(arrives), runs, models))
    return found


class _Row(dict[str, str]):
    """A row by the names of the columns."""

    where: str

    def error(self, what: str) -> BadInput:
        return BadInput(f"{self.where}: {what}")

    def name(self, column: str, optional: bool = False) -> str:
        """A word that may stand in labels and in the list of cards that a node registers."""
        if not WORD.fullmatch(self[column]) and not (optional and not self[column]):
            raise self.error(f"{column} {self[column]!r}: it has letters, digits, -, _ and . alone")
        return self[column]

    def whole(self, column: str, most: int = 10**15) -> int:
        text = self[column]
        try:
            number = int(float(text))
        except (ValueError, OverflowError):
            raise self.error(f"{column} {text!r} is no number") from None
        if number < 0:
            raise self.error(f"{column} {text} is negative")
        if number > most:
            raise self.error(f"{column} {text} is above {most:,}")
        return number


def _rows(text: str, file: str, needed: tuple[str, ...]) -> Iterator[_Row]:
    lines = csv.reader(text.lstrip("\ufeff").splitlines())
    header = next(lines, [])
    if missing := [column for column in needed if column not in header]:
        raise BadInput(f"{file}:1: no column {', '.join(missing)}; a trace lists nodes by {','.join(NODES)} or pods by "
                       f"{','.join(PODS)}")  # fmt: skip
    seen: set[str] = set()
    for cells in lines:
        row = _Row(zip(header, cells, strict=False))
        row.where = f"{file}:{lines.line_num}"
        if len(cells) != len(header):
            raise row.error(f"{len(cells)} of {len(header)} columns; is the file cut off?")
        if (name := row[needed[0]]) in seen or not name:
            raise row.error(f"{needed[0]} {name!r} is there twice" if name else f"{needed[0]} is empty")
        seen.add(name)
        yield row
    if not seen:
        raise BadInput(f"{file}: it has a header and no rows; is the file cut off?")
