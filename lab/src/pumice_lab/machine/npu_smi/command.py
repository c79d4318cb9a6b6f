"""The command line of the emulated machine's ``npu-smi``. Its options belong to a type (``-t``), as the tool's own do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from pumice.adapters.dcmi.driver import ANY, Dcmi, Device
from pumice.ports.cards import CardsUnavailable
from pumice.ports.vnpus import NpuRefused
from pumice_lab.machine.document import nearest
from pumice_lab.machine.native import MachineError, library_dir
from pumice_lab.machine.npu_smi import slices, table
from pumice_lab.machine.npus import has_npus

DEFAULT_MACHINE = "/run/pumice/machine"
BAD_USAGE, REFUSED, CLOSED = 2, 1, 200
Shown = Callable[[Dcmi, list[Device]], Iterator[str]]
INFO: dict[str, Shown] = {
    "board": table.board,
    "memory": table.memory,
    "usages": table.usages,
    "health": table.health,
    "template-info": slices.templates,
    "info-vnpu": slices.listed,
}
SET = ("create-vnpu", "destroy-vnpu", "device-share")


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where the driver refuses, 2 for bad usage, 200 where a question is not answered."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    machine = os.environ.get("PUMICE_MACHINE") or DEFAULT_MACHINE
    try:
        if not has_npus(machine):
            raise MachineError(f"{machine}: no emulated NPUs here; make some with `pumice machine npus --make 310P3`")
        given = _parser().parse_args(words)
        dcmi = Dcmi(str(library_dir()))
        for line in _lines(dcmi, given):
            print(line)
    except (MachineError, CardsUnavailable, _Wrong) as error:
        print(f"npu-smi (emulated): {error}", file=sys.stderr)
        return BAD_USAGE
    except NpuRefused as error:
        print("Status : Failed", f"Message : {error}", sep="\n")
        return REFUSED
    except EOFError:
        return CLOSED
    except BrokenPipeError:
        sys.stderr.close()  # the reader has what it wanted
    return 0


class _Wrong(Exception):
    """A command line that has no meaning."""


def _lines(dcmi: Dcmi, given: argparse.Namespace) -> Iterator[str]:
    devices = _named(dcmi, given)
    if given.action == "info":
        if given.list:
            yield from table.cards(dcmi, devices)
        elif given.mapping:
            yield from table.mapping(dcmi, devices)
        elif not given.type:
            yield from table.drawn(dcmi, devices)
        elif given.type in INFO:
            yield from INFO[given.type](dcmi, devices)
        else:
            raise _Wrong(f"info -t {given.type}: not known{nearest(given.type, INFO)}")
        return
    if given.type not in SET:
        raise _Wrong(f"set -t {given.type}: not known{nearest(given.type, SET)}")
    if given.card is None or len(devices) != 1:
        raise _Wrong(f"set -t {given.type} needs one chip: -i and -c")
    yield from _set(dcmi, devices[0], given)


def _set(dcmi: Dcmi, device: Device, given: argparse.Namespace) -> Iterator[str]:
    if given.type == "create-vnpu":
        if not given.template:
            raise _Wrong("create-vnpu needs -f TEMPLATE; `npu-smi info -t template-info` lists them")
        yield from slices.create(dcmi, device, given.template, given.vnpu, given.group)
    elif given.type == "destroy-vnpu":
        if given.vnpu == ANY:
            raise _Wrong("destroy-vnpu needs -v ID")
        yield from slices.destroy(dcmi, device, given.vnpu)
    else:
        if given.switch is None:
            raise _Wrong("device-share needs -d 0 or 1")
        answer = input("Changing the share mode of a chip that is in use stops what runs on it. Continue? (Y/N) ")
        if answer.strip().upper() == "Y":
            dcmi.share(device, given.switch == "1")
            yield "Status : OK"
            yield "Message : Set device-share success"


def _named(dcmi: Dcmi, given: argparse.Namespace) -> list[Device]:
    every = dcmi.devices()
    found = [d for d in every if given.card in (None, d.card) and given.chip in (None, d.device)]
    if not found:
        raise _Wrong(f"no chip {given.chip or 0} of NPU {given.card}; there are {', '.join(str(d.card) for d in every)}")
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise _Wrong(f"{message}; see npu-smi -h")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="npu-smi",
        description="The NPUs of an emulated machine (Pumice). Not Huawei's tool: only the common ways to ask.",
        epilog="Example: npu-smi info -t info-vnpu -i 0 -c 0; npu-smi set -t create-vnpu -i 0 -c 0 -f vir02",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_Parser)
    info = actions.add_parser("info", help="what is there", allow_abbrev=False)
    info.add_argument("-l", dest="list", action="store_true", help="the cards")
    info.add_argument("-m", dest="mapping", action="store_true", help="which number is which")
    change = actions.add_parser("set", help="make, destroy and switch", allow_abbrev=False)
    info.add_argument("-t", dest="type", default="", help=f"one of {', '.join(INFO)}")
    change.add_argument("-t", dest="type", required=True, help=f"one of {', '.join(SET)}")
    for one in (info, change):
        one.add_argument("-i", dest="card", type=int, help="the NPU")
        one.add_argument("-c", dest="chip", type=int, help="the chip on it")
    change.add_argument("-f", dest="template", default="", help="the template to cut by")
    change.add_argument("-v", dest="vnpu", type=int, default=ANY, help="the vNPU's id")
    change.add_argument("-g", dest="group", type=int, default=ANY, help="the vGroup")
    change.add_argument("-d", dest="switch", choices=("0", "1"), help="off or on")
    return parser
