"""``pumice burn``: a small CUDA program that takes memory and keeps a card busy, and says what it got.

What it does stands in ``adapters.load``. Tests start it by the hundred as ``python -m pumice.cli.burn``, so it imports the
standard library only and parses its own arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import NoReturn

from pumice.adapters.load import Got, Load, perform
from pumice.model.amount import mebibytes
from pumice.model.errors import BadInput, PumiceError
from pumice.wire import variables

PLAIN = True
"""Called as ``main(arguments)``, without the command line's framework."""
INTERRUPTED = 130
MIB = 1 << 20

ABOUT = """\
Load a card: take memory, launch kernels, print what was got.

Without options kernels of 1 ms until Ctrl-C. With --memory alone the memory is
taken and given back; --seconds holds it. With a length and no end 100 kernels;
with --seconds as many as fit; --kernels 0 launches none.
Exit code 1: the driver refused."""
EXAMPLES = """\
examples:
  kernels until Ctrl-C
    pumice burn
  memory and long kernels for a while
    pumice burn --memory 2000 --kernel-ms 10 --seconds 5
  without a card: on an emulated one
    pumice run --emulated --memory 40% -- pumice burn"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; see `pumice burn --help`")


def parser() -> argparse.ArgumentParser:
    found = _Parser(prog="pumice burn", usage="pumice burn [OPTIONS]", description=ABOUT, epilog=EXAMPLES,
                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)  # fmt: skip
    found.add_argument("--memory", type=_amount, default=0, metavar="AMOUNT", help="memory to take: MiB, or as 3GiB (default 0)")
    found.add_argument("--block", type=_block, default=64, metavar="AMOUNT", help="size of one allocation (64 MiB)")
    found.add_argument("--shape", choices=("linear", "pitched", "async"), default="linear", help="kind of allocation")
    found.add_argument("--kernels", type=_natural, metavar="N", help="stop after N kernels")
    length = found.add_mutually_exclusive_group()
    length.add_argument("--kernel-ms", type=_duration, metavar="D", help="length of a kernel")
    length.add_argument("--kernel-us", type=_duration, metavar="D", help="length of a kernel (default 1000)")
    found.add_argument("--seconds", type=_duration, metavar="S", help="stop after S seconds, or hold the memory")
    found.add_argument("--streams", type=_positive, default=1, metavar="N", help="streams to use in turn (1)")
    found.add_argument("--device", type=_natural, default=0, metavar="I", help="the driver's number of the card (0)")
    found.add_argument("--npu", action="store_true", help="load an emulated Ascend NPU instead of a graphics card")
    found.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return found


def _load(arguments: Sequence[str]) -> tuple[Load, bool]:
    given = parser().parse_args(arguments)
    kernel_us = given.kernel_ms * 1000 if given.kernel_ms is not None else given.kernel_us
    nothing_else = not given.memory and given.kernels is None and kernel_us is None  # a load is what burn is for
    if kernel_us is None:
        kernel_us = 1000.0 if given.kernels or nothing_else else 0.0
    counted = kernel_us and given.seconds is None and not nothing_else
    kernels = given.kernels if given.kernels is not None or not counted else 100
    load = Load(
        device=given.device,
        memory=given.memory * MIB,
        block=given.block * MIB,
        shape=given.shape,
        kernels=kernels,
        kernel_ns=int(kernel_us * 1000),
        streams=given.streams,
        seconds=given.seconds,
        npu=given.npu,
    )
    return load, given.output == "json"


def _natural(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise argparse.ArgumentTypeError(f"a whole number from 0 on, not {text!r}")
    return int(text)


def _amount(text: str, least: int = 0) -> int:
    try:
        return mebibytes("", text, least=least, most=10**12)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None


def _block(text: str) -> int:
    return _amount(text, least=1)


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {text!r}")
    return int(text)


def _duration(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")
    return value


def _tell_taken(got: Got) -> None:
    print(f"card {got.device}: {got.name}, {got.total_bytes // MIB} MiB", flush=True)
    if got.wanted_bytes:
        print(f"memory: {got.granted_bytes // MIB} of {got.wanted_bytes // MIB} MiB granted", flush=True)


def _tell_done(got: Got) -> None:
    if got.elapsed_ns:
        print(
            f"kernels: {got.kernels} of {got.kernel_ns / 1e6:g} ms in {got.elapsed_ns / 1e9:.3f} s, "
            f"{got.kernels_per_second:.1f} a second, {got.busy_share:.1%} busy"
        )
    if got.error:
        print(f"refused: {got.error['name']} ({got.error['code']}) by {got.error['call']}")


def _library(name: str) -> str:
    """The emulated machine's driver when PUMICE_MACHINE names one and LD_LIBRARY_PATH does not lead there already."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if variables.MACHINE in os.environ and not any(os.path.exists(f"{folder}/{name}") for folder in folders):
        from pumice.machine.native import library_dir

        return str(library_dir() / name)
    return name


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the load; 0, or 1 when the driver refused something, or 2 when there is no driver to ask."""
    lacking, name = "no CUDA driver on this machine ({}); without a card: pumice run --emulated -- pumice burn", "libcuda.so.1"
    try:
        load, as_json = _load(sys.argv[1:] if arguments is None else arguments)
        if load.npu:
            lacking, name = "no emulated NPU ({}); pumice machine npus DIRECTORY --make 310P3 makes one", "libascendcl.so"
        got = perform(load, _library(name), (lambda got: None) if as_json else _tell_taken)
    except OSError as error:
        print(f"pumice burn: {lacking.format(error)}", file=sys.stderr)
        return 2
    except PumiceError as error:
        print(f"pumice burn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    if as_json:
        print(json.dumps(asdict(got)))
    else:
        if got.error and got.granted_bytes < got.wanted_bytes:
            _tell_taken(got)
        _tell_done(got)
    return 1 if got.error else INTERRUPTED if got.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
