"""The command line of the emulated machine's ``nvidia-smi``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pumice.machine import MachineError, nvml_library, open_machine
from pumice.machine.document import nearest

if TYPE_CHECKING:
    from pumice.machine.nvidia_smi.cards import Card

DEFAULT_MACHINE = "/run/pumice/machine"
NO_DRIVER, BAD_USAGE, NOT_FOUND = 9, 2, 6  # exit codes of NVIDIA's tool


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
        _print(_mig_command(words[1:]) if words[:1] == ["mig"] else _command(words))
    except pynvml.NVMLError as error:
        print(f"nvidia-smi (emulated): {error}", file=sys.stderr)
        return NO_DRIVER if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED else int(error.value) & 0xFF
    except _Failed as failed:
        print(failed.text, file=sys.stdout if failed.code == NOT_FOUND else sys.stderr)
        return failed.code
    except BrokenPipeError:
        sys.stderr.close()  # the reader has what it wanted
    return 0


class _Failed(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _named(ids: str | None) -> list[Card]:
    """The cards of ``-i``, or all."""
    from pumice.machine.nvidia_smi.cards import cards

    try:
        return cards([word for word in (ids or "").split(",") if word])
    except LookupError as error:
        raise _Failed(f"No devices were found: {error.args[0]}", NOT_FOUND) from None


def _command(words: list[str]) -> Iterator[str]:
    from pumice.machine.nvidia_smi import details, mig, query, table

    given = _parser().parse_args(words)
    chosen = _named(given.id)
    try:
        if given.mig is not None:
            yield from mig.set_mode(chosen, given.mig == "1")
        elif given.list_gpus:
            yield from table.listed(chosen)
        elif given.query:
            yield from details.report(chosen, datetime.now())
        elif given.query_gpu or given.query_compute_apps:
            shape = _shape(given.format)
            fields = [field.strip() for field in (given.query_gpu or given.query_compute_apps).split(",")]
            ask = query.query_cards if given.query_gpu else query.query_apps
            yield from ask(chosen, fields, header="noheader" not in shape, units="nounits" not in shape)
        else:
            yield from table.drawn(chosen, datetime.now())
    except mig.Refused as refused:
        raise _Failed(str(refused), 1) from None
    except query.UnknownField as unknown:
        known = query.FIELDS if given.query_gpu else query.APP_FIELDS
        field = unknown.args[0]
        raise _Failed(f'Field "{field}" is not a valid field to query{nearest(field, known)}', BAD_USAGE) from None


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
    parser.add_argument("-i", "--id", metavar="ID", help="only these cards: index, UUID or PCI address, with commas")
    parser.add_argument("-mig", "--multi-instance-gpu", dest="mig", choices=("0", "1"), help="switch MIG mode")
    parser.add_argument("--query-gpu", metavar="FIELDS", help="fields of each card, with --format=csv")
    parser.add_argument("--query-compute-apps", metavar="FIELDS", help="fields of each process, with --format=csv")
    parser.add_argument("--format", metavar="csv[,noheader][,nounits]", help="how to print a query")
    return parser


def _mig_command(words: list[str]) -> Iterator[str]:
    from pumice.machine.nvidia_smi import mig

    given = _mig_parser().parse_args(words)
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
