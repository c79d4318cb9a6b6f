"""The command line of the emulated machine's ``nvidia-smi``."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pumice_lab.machine import MachineError, nvml_library, open_machine
from pumice_lab.machine.document import nearest

if TYPE_CHECKING:
    from pumice_lab.machine.nvidia_smi.cards import Card

DEFAULT_MACHINE = "/run/pumice/machine"
NO_DRIVER, BAD_USAGE, NOT_FOUND = 9, 2, 6  # exit codes of NVIDIA's tool
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes as NVIDIA's tool has them: 0, 2 bad usage, 6 no such card, 9 no driver; an NVML error's number else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        open_machine(os.environ.get("PUMICE_MACHINE") or DEFAULT_MACHINE).close()
        nvml_library()
    except MachineError as error:
        print(f"nvidia-smi (emulated): {error}", file=sys.stderr)
        return NO_DRIVER
    import pynvml  # after the machine's library is loaded, so that it finds that one

    try:
        pynvml.nvmlInit()
        _print(_COMMANDS.get(words[0] if words else "", _command)(words))
    except pynvml.NVMLError as error:
        print(f"nvidia-smi (emulated): {error}", file=sys.stderr)
        return NO_DRIVER if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED else int(error.value) & 0xFF
    except _Failed as failed:
        print(failed.text, file=sys.stdout if failed.code == NOT_FOUND else sys.stderr)
        return failed.code
    except BrokenPipeError:
        sys.stderr.close()  # the reader has what it wanted
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class _Failed(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)  # who loops is read while it does


def _named(ids: str | None) -> list[Card]:
    """The cards of ``-i``, or all."""
    from pumice_lab.machine.nvidia_smi.cards import cards

    try:
        return cards([word for word in (ids or "").split(",") if word])
    except LookupError as error:
        raise _Failed(f"No devices were found: {error.args[0]}", NOT_FOUND) from None


def _again(every: float | None, look: Callable[[bool], Iterator[str]], count: int | None = None) -> Iterator[str]:
    """Return what a look shows, once or again and again; ``look`` is told whether it is the first."""
    number = 0
    while True:
        yield from look(number == 0)
        number += 1
        if every is None or number == count:
            return
        time.sleep(every)


def _command(words: list[str]) -> Iterator[str]:
    from pumice_lab.machine.nvidia_smi import mig, query, table

    given = _parser().parse_args(words)
    chosen = _named(given.id)
    every = given.loop if given.loop is not None else given.loop_ms / 1000 if given.loop_ms is not None else None
    try:
        if given.version:
            yield from table.versions()
        elif given.mig is not None:
            yield from mig.set_mode(chosen, given.mig == "1")
        elif given.list_gpus:
            yield from table.listed(chosen)
        else:
            yield from _again(every, _look(given, chosen))
    except mig.Refused as refused:
        raise _Failed(str(refused), 1) from None
    except query.UnknownField as unknown:
        known = query.FIELDS if given.query_gpu else query.APP_FIELDS
        field = unknown.args[0]
        raise _Failed(f'Field "{field}" is not a valid field to query{nearest(field, known)}', BAD_USAGE) from None


def _look(given: argparse.Namespace, chosen: list[Card]) -> Callable[[bool], Iterator[str]]:
    from pumice_lab.machine.nvidia_smi import details, query, table

    if given.query:
        sections = _sections(given.display)
        return lambda first: details.report(chosen, datetime.now(), sections)
    if given.query_gpu or given.query_compute_apps:
        shape = _shape(given.format)
        fields = [field.strip() for field in (given.query_gpu or given.query_compute_apps).split(",")]
        ask = query.query_cards if given.query_gpu else query.query_apps
        heading = "noheader" not in shape
        return lambda first: ask(chosen, fields, header=heading and first, units="nounits" not in shape)
    return lambda first: table.drawn(chosen, datetime.now())


def _sections(words: str | None) -> frozenset[str]:
    """The titles that ``-d`` names; none of them: all."""
    from pumice_lab.machine.nvidia_smi.details import SECTIONS

    named = [word.strip().upper() for word in (words or "").split(",") if word.strip()]
    if odd := next((word for word in named if word not in SECTIONS), ""):
        raise _Failed(f'-d: "{odd}" is not a section that is shown here{nearest(odd, SECTIONS)}', BAD_USAGE)
    return frozenset().union(*(SECTIONS[word] for word in named))


def _shape(word: str | None) -> set[str]:
    parts = {part.strip() for part in (word or "").split(",")}
    if "csv" not in parts:
        raise _Failed("a query needs --format=csv (and may add noheader, nounits)", BAD_USAGE)
    if odd := sorted(parts - {"csv", "noheader", "nounits"}):
        raise _Failed(f'--format: "{odd[0]}" is not known{nearest(odd[0], ("csv", "noheader", "nounits"))}', BAD_USAGE)
    return parts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi",
        description="The cards of an emulated machine (Pumice). Not NVIDIA's tool: only the common ways to ask.",
        epilog="Example: nvidia-smi --query-gpu=index,memory.used --format=csv,noheader; nvidia-smi mig -h for instances",
        allow_abbrev=False,
    )
    parser.add_argument("-L", "--list-gpus", action="store_true", help="list the cards and their MIG devices")
    parser.add_argument("-q", "--query", action="store_true", help="the long report")
    parser.add_argument("-d", "--display", metavar="SECTIONS", help="with -q: only these, such as MEMORY,UTILIZATION,PIDS")
    parser.add_argument("-l", "--loop", metavar="SEC", type=_pause, nargs="?", const=5.0, help="again every so many seconds")
    parser.add_argument("-lms", "--loop-ms", metavar="MS", type=_pause, help="again every so many milliseconds")
    parser.add_argument("--version", action="store_true", help="versions of the driver and of CUDA")
    parser.add_argument("-i", "--id", metavar="ID", help="only these cards: index, UUID or PCI address, with commas")
    parser.add_argument("-mig", "--multi-instance-gpu", dest="mig", choices=("0", "1"), help="switch MIG mode")
    parser.add_argument("--query-gpu", metavar="FIELDS", help="fields of each card, with --format=csv")
    parser.add_argument("--query-compute-apps", metavar="FIELDS", help="fields of each process, with --format=csv")
    parser.add_argument("--format", metavar="csv[,noheader][,nounits]", help="how to print a query")
    return parser


def _pause(text: str) -> float:
    pause = float(text)
    if not 0 < pause < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no pause")
    return pause


def _topology_command(words: list[str]) -> Iterator[str]:
    from pumice_lab.machine.nvidia_smi import details

    parser = argparse.ArgumentParser(
        prog="nvidia-smi topo", description="How the cards of an emulated machine (Pumice) reach each other.",
        epilog="Example: nvidia-smi topo -m", allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("-m", "--matrix", action="store_true", required=True, help="a row and a column for each card")
    parser.add_argument("-i", "--id", metavar="ID", help="only these cards")
    yield from details.matrix(_named(parser.parse_args(words[1:]).id))


def _monitor_command(words: list[str]) -> Iterator[str]:
    from pumice_lab.machine.nvidia_smi import monitors

    processes = words[0] == "pmon"
    known = "um" if processes else "".join(monitors.GROUPS)
    given = _monitor_parser(words[0], "u" if processes else "puc", known).parse_args(words[1:])
    chosen, once = _named(given.id), monitors.processes_once if processes else monitors.cards_once
    if odd := next((letter for letter in given.select if letter not in known), ""):
        raise _Failed(f'-s: "{odd}" is not shown here; these are: {", ".join(known)}', BAD_USAGE)
    numbers = itertools.count()
    yield from _again(
        given.delay, lambda first: once(chosen, given.select, heading=next(numbers) % monitors.HEADING_EVERY == 0), given.count
    )


def _monitor_parser(word: str, select: str, known: str) -> argparse.ArgumentParser:
    of = "process on each card" if word == "pmon" else "card"
    parser = argparse.ArgumentParser(
        prog=f"nvidia-smi {word}", description=f"A line for each {of} of an emulated machine (Pumice), again and again.",
        epilog=f"Example: nvidia-smi {word} -c 5 -s {select}", allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("-i", "--id", metavar="ID", help="only these cards")
    parser.add_argument("-d", "--delay", metavar="SEC", type=_pause, default=1.0, help="seconds between looks (1)")
    parser.add_argument("-c", "--count", metavar="N", type=int, help="how many looks; without it until it is stopped")
    parser.add_argument("-s", "--select", metavar="LETTERS", default=select, help=f"what is shown, of {known} ({select})")
    return parser


def _mig_command(words: list[str]) -> Iterator[str]:
    from pumice_lab.machine.nvidia_smi import mig

    given = _mig_parser().parse_args(words[1:])
    named = _named(given.id)
    chosen = [card for card in named if (mode := card.mig_mode()) and mode[0]]
    if not chosen:
        raise _Failed("No MIG-enabled devices found.", NOT_FOUND)
    numbers = [int(number) for number in (given.gi or "").split(",") if number]
    actions: dict[str, Iterator[str]] = {
        "lgip": mig.list_profiles(chosen),
        "lgipp": mig.list_placements(chosen),
        "lgi": mig.list_instances(chosen),
        "dci": mig.destroy_compute(chosen, numbers),
        "dgi": mig.destroy(chosen, numbers),
    }
    try:
        if given.cgi:
            yield from mig.create(chosen, given.cgi.split(","), with_compute=given.default_compute)
        else:
            yield from actions[given.action]
    except mig.Refused as refused:
        raise _Failed(str(refused), NOT_FOUND) from None


def _mig_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi mig",
        description="GPU instances of an emulated machine (Pumice).",
        epilog="Example: nvidia-smi mig -i 0 -cgi 9,3g.20gb -C",
        allow_abbrev=False,
    )
    parser.add_argument("-i", "--id", metavar="ID", help="only these cards")
    what = parser.add_mutually_exclusive_group(required=True)
    for word, text in (
        ("lgip", "list what can be made"),
        ("lgipp", "list where it may lie"),
        ("lgi", "list the GPU instances"),
        ("dci", "destroy compute instances"),
        ("dgi", "destroy GPU instances"),
    ):
        what.add_argument(f"-{word}", dest="action", action="store_const", const=word, help=text)
    what.add_argument("-cgi", metavar="PROFILES", help="create GPU instances: ids or names, with :start to place them")
    parser.add_argument("-gi", metavar="IDS", help="the GPU instances to destroy or to empty (all without it)")
    parser.add_argument("-C", dest="default_compute", action="store_true", help="with a compute instance in each")
    return parser


_COMMANDS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "mig": _mig_command, "topo": _topology_command, "dmon": _monitor_command, "pmon": _monitor_command,
}  # fmt: skip
"""By the first word; whatever else begins with an option."""
