"""``pumice burn``: a small CUDA program that takes memory and keeps a card busy, and says what it got.

What it does stands in ``adapters.load``. Tests start it by the hundred as ``python -m pumice.cli.burn``, so it imports little.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from pumice.adapters.load import Got, Load, perform
from pumice.cli import flags
from pumice.cli.laboratory import driver
from pumice.cli.output import document
from pumice.cli.reading import Mistake
from pumice.model.amount import mebibytes
from pumice.model.errors import BadInput, PumiceError

app = flags.App()
INTERRUPTED = 130
MIB = 1 << 20

EXAMPLES = (
    "Examples: pumice burn  # kernels until Ctrl-C"
    ";  pumice burn --memory 2000 --kernel-ms 10 --seconds 5  # memory and long kernels for a while"
    ";  pumice run --emulated --memory 40% -- pumice burn  # without a card: on an emulated one"
)


class Shape(StrEnum):
    LINEAR = "linear"
    PITCHED = "pitched"
    ASYNC = "async"


class BurnOutput(StrEnum):
    TEXT = "text"
    JSON = "json"


def _natural(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise BadInput(f"a whole number from 0 on, not {text!r}")
    return int(text)


def _amount(text: str, least: int = 0) -> int:
    return mebibytes("", text, least=least, most=10**12)


def _block(text: str) -> int:
    return _amount(text, least=1)


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text) or not int(text):
        raise BadInput(f"a whole number from 1 on, not {text!r}")
    return int(text)


def _duration(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise BadInput(f"a number from 0 on, not {text!r}")
    return value


@app.command(epilog=EXAMPLES)
def burn(
    memory: Annotated[int, flags.Option(read=_amount, metavar="AMOUNT", help="Memory to take: MiB, or as 3GiB.")] = 0,
    block: Annotated[int, flags.Option(read=_block, metavar="AMOUNT", help="Size of one allocation.")] = 64,
    shape: Annotated[Shape, flags.Option(help="Kind of allocation.")] = Shape.LINEAR,
    kernels: Annotated[int | None, flags.Option(read=_natural, metavar="N", help="Stop after N kernels.")] = None,
    kernel_ms: Annotated[float | None, flags.Option(read=_duration, metavar="D", help="Length of a kernel.")] = None,
    kernel_us: Annotated[float | None, flags.Option(read=_duration, metavar="D", help="The same; 1000 if none is given.")] = None,
    seconds: Annotated[float | None, flags.Option(read=_duration, metavar="S", help="Stop then, or hold the memory.")] = None,
    streams: Annotated[int, flags.Option(read=_positive, metavar="N", help="Streams to use in turn.")] = 1,
    device: Annotated[int, flags.Option(read=_natural, metavar="I", help="The driver's number of the card.")] = 0,
    npu: Annotated[bool, flags.Option("--npu", help="Load an emulated Ascend NPU instead of a graphics card.")] = False,
    output: Annotated[BurnOutput, flags.Option("-o", "--output", help="How to print.")] = BurnOutput.TEXT,
) -> None:
    """Load a card: take memory, launch kernels, print what was got.

    Without options kernels of 1 ms until Ctrl-C. With --memory alone the memory is taken and given back; --seconds holds it.
    With a length and no end 100 kernels; with --seconds as many as fit; --kernels 0 launches none. Exit code 1: the driver
    refused; 2: there is no driver to ask.
    """
    if kernel_ms is not None and kernel_us is not None:
        raise Mistake("--kernel-ms and --kernel-us both give the length of a kernel: leave one out")
    length = kernel_ms * 1000 if kernel_ms is not None else kernel_us
    nothing_else = not memory and kernels is None and length is None  # a load is what burn is for
    if length is None:
        length = 1000.0 if kernels or nothing_else else 0.0
    counted = length and seconds is None and not nothing_else
    load = Load(
        device=device,
        memory=memory * MIB,
        block=block * MIB,
        shape=shape.value,
        kernels=kernels if kernels is not None or not counted else 100,
        kernel_ns=int(length * 1000),
        streams=streams,
        seconds=seconds,
        npu=npu,
    )
    raise SystemExit(carry_out(load, output is BurnOutput.JSON))


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


def carry_out(load: Load, as_json: bool) -> int:
    """0, or 1 when the driver refused something, or 2 when there is no driver to ask."""
    lacking, name = "no CUDA driver on this machine ({}); without a card: pumice run --emulated -- pumice burn", "libcuda.so.1"
    try:
        if load.npu:
            lacking, name = "no emulated NPU ({}); pumice machine npus DIRECTORY --make 310P3 makes one", "libascendcl.so"
        got = perform(load, driver(name, os.environ), (lambda got: None) if as_json else _tell_taken)
    except OSError as error:
        print(f"pumice burn: {lacking.format(error)}", file=sys.stderr)
        return 2
    except PumiceError as error:
        print(f"pumice burn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    if as_json:
        print(document(asdict(got), 0))
    else:
        if got.error and got.granted_bytes < got.wanted_bytes:
            _tell_taken(got)
        _tell_done(got)
    return 1 if got.error else INTERRUPTED if got.interrupted else 0


if __name__ == "__main__":
    from pumice.cli.main import main

    main(["burn", *sys.argv[1:]])
