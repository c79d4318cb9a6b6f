"""The command line of the emulated machine's ``npu-smi``. Its options belong to a type (``-t``), as the tool's own do."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pumice.adapters.dcmi.driver import ANY, Dcmi, Device
from pumice.model.hardware.npu import driver_chips
from pumice.ports.cards import CardsUnavailable
from pumice.ports.slices import UNOPENED, NpuRefused
from pumice_lab.machine.document import nearest
from pumice_lab.machine.native import MachineError, library_dir
from pumice_lab.machine.npu_smi import table
from pumice_lab.machine.npus import has_npus

DEFAULT_MACHINE = "/run/pumice/machine"
BAD_USAGE, REFUSED, CLOSED = 2, 1, 200
Shown = Callable[[Dcmi, list[Device]], Iterator[str]]


_WIDTH = 79
_MEDIA = ("vpc", "venc", "vdec", "jpegd", "jpege", "pngd")


def listed(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    """``info -t info-vnpu``: what is free of each unit, and the slices. A container id of twelve f is a slice that no container
    has opened, one of zeros a slice whose container has ended."""
    for device in devices:
        total, free = dcmi.totals(device), dcmi.available(device)
        rule = f"+{'-' * _WIDTH}+"
        yield rule
        yield _text("NPU resource static info as follow:")
        yield _text("Format:Free/Total                   NA: Currently, query is not supported.")
        yield _text("AICORE    Memory    AICPU   VPC     VENC    VDEC    JPEGD   JPEGE   PNGD")
        yield _text("          GB")
        yield f"|{'=' * _WIDTH}|"
        yield _text(_units(free, total))
        yield rule
        ones = list(dcmi.ones(device))
        yield _text(f"Total number of vnpu: {len(ones)}")
        yield rule
        yield _row("Vnpu ID", "Vgroup ID", "Container ID", "Status", "Template Name")
        yield rule
        for one in ones:
            container = f"{one.info.container & UNOPENED:012x}"
            yield _row(one.id, one.info.group, container, one.info.status, one.info.name.decode(errors="replace"))
            yield rule


def templates(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    """``info -t template-info``: what the chip can be cut by."""
    yield f"{'Name':<18}{'AICORE':>8}{'Memory(GB)':>12}{'AICPU':>8}{'VPC':>6}{'VENC':>6}{'VDEC':>6}{'JPEGD':>7}{'JPEGE':>7}"
    for device in devices[:1]:
        chip = driver_chips().get(ctypes.string_at(dcmi.chip(device).name).decode(errors="replace"))
        for word, size in chip.templates if chip else ():
            jpegd, jpege, vpc, vdec, _, venc = size.media
            yield f"{word:<18}{size.cores:>8}{_gb(size.memory):>12}{size.cpus:>8}{vpc:>6}{venc:>6}{vdec:>6}{jpegd:>7}{jpege:>7}"


def create(dcmi: Dcmi, device: Device, template: str, ident: int, group: int) -> Iterator[str]:
    made = dcmi.create(device, template, ident, group)
    yield from ("Status : OK", "Message : Create vnpu success", f"Vnpu ID : {made.id}", f"Vgroup ID : {made.group}")


def destroy(dcmi: Dcmi, device: Device, ident: int) -> Iterator[str]:
    dcmi.destroy(device, ident)
    yield from ("Status : OK", f"Message : Destroy vnpu {ident} success")


def _units(free: Any, total: Any) -> str:
    left, most = free.computing, total.computing
    cells = [
        f"{left.aic:.0f}/{most.aic:.0f}", f"{_gb(left.memory_total)}/{_gb(most.memory_total)}",
        f"{left.device_aicpu}/{most.device_aicpu}" if most.device_aicpu else "NA/NA",
    ]  # fmt: skip
    for unit in _MEDIA:
        have, of = getattr(free.media, unit), getattr(total.media, unit)
        cells.append(f"{have:.0f}/{of:.0f}" if of else "NA/NA")
    return f"{cells[0]:<10}{cells[1]:<10}" + "".join(f"{cell:<8}" for cell in cells[2:])


def _gb(megabytes: int) -> int:
    return megabytes // 1024


def _text(text: str) -> str:
    return f"|{' ' + text.rstrip():<{_WIDTH}}|"


def _row(*cells: object) -> str:
    widths = (11, 16, 16, 10, 22)
    return "|" + "|".join(f"{f'  {cell}':<{width}}" for cell, width in zip(cells, widths, strict=True)) + "|"


INFO: dict[str, Shown] = {
    "board": table.board,
    "memory": table.memory,
    "usages": table.usages,
    "health": table.health,
    "template-info": templates,
    "info-vnpu": listed,
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
        yield from create(dcmi, device, given.template, given.vnpu, given.group)
    elif given.type == "destroy-vnpu":
        if given.vnpu == ANY:
            raise _Wrong("destroy-vnpu needs -v ID")
        yield from destroy(dcmi, device, given.vnpu)
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
