"""``pumice run``: a program with a share of a card, on this machine, without a cluster.

Every program pays for what is imported here before it starts.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.adapters.native import loadable, vgpu_library
from pumice.cli import flags
from pumice.model.errors import BadInput, PumiceError, Unavailable
from pumice.wire import variables

if TYPE_CHECKING:
    from pumice.local.place import Place
    from pumice.local.request import Request
    from pumice.ports.cards import Cards

app = flags.App()
NOT_RUNNABLE, NOT_FOUND = 126, 127  # as shells have it


TOOK = "--emulated took {!r} for a machine"
ELSEWHERE = frozenset(("buildah", "crictl", "ctr", "docker", "kubectl", "nerdctl", "podman", "ssh", "su", "sudo", "systemd-run"))
ASKS_OTHERS = (
    "{} has its program started by others or without this environment: there the share limits nothing; write `pumice run` in "
    "front of the program itself"
)
NO_COMMAND = "{}; write the command after --, as in: pumice run --memory 3000 -- python train.py"
EXAMPLES = (
    "Examples: pumice run --memory 3000 --cores 50 -- python train.py  # 3000 MiB and half of the compute of card 0"
    ";  pumice run --memory 25% --gpu auto -- python train.py  # a quarter of the card where most is free"
    ";  pumice run --gpus 2 --cores 100 -- torchrun train.py  # two cards, to itself"
    ";  pumice run --priority 0 --memory 8000 -- python serve.py  # goes first: low ones on its card wait meanwhile"
    ";  pumice run --emulated --memory 40% -- pumice burn  # without a card: on an emulated one"
)


@app.command(epilog=EXAMPLES, program=True)
def run(
    context: flags.Context,
    memory: Annotated[str | None, flags.Option(
        metavar="AMOUNT|P%", help="Memory: MiB, with a unit as 3GiB, or percent of the card's (default: all of it); 3000,8000: "
        "of each card that --gpu names.")
    ] = None,
    cores: Annotated[str, flags.Option(
        metavar="P", show_default=False, help="Percent of the card's compute (default: no limit); 20,50: of each card.")
    ] = "0",
    gpu: Annotated[str | None, flags.Option(
        metavar="CARD", help="Number or UUID of the card, several as 0,1; auto: where most is free; all "
        "(default: the first of CUDA_VISIBLE_DEVICES, else 0).")
    ] = None,
    gpus: Annotated[str | None, flags.Option(
        metavar="N|all", help="So many cards, those where most is free; memory and cores are of each.")
    ] = None,
    priority: Annotated[str, flags.Option(
        metavar="N", show_default=False, help="0 high, 1 low (the default): low waits while high is at work on the same card.")
    ] = "1",
    emulated: Annotated[str | None, flags.Option(
        metavar="[MODEL|DIR]", bare=True, help="On an emulated machine: a model file, cards such as 2xTesla-T4, or a machine's "
        "directory (default: your own, made on first use).")
    ] = None,
) -> None:  # fmt: skip
    """Run a program with a share of one or several cards. The share is kept until the program and everything that it started have
    ended. Exit code and signals are the program's own; 2: the share cannot be had; 126 and 127 as shells have them."""
    command = context.rest
    try:
        if not command:
            raise BadInput(NO_COMMAND.format(TOOK.format(emulated) if emulated else "no command"))
        code = _run(_request(memory, cores, gpu, gpus, priority), command, emulated)
    except PumiceError as error:
        print(f"pumice run: {error}", file=sys.stderr)
        code = 2
    raise SystemExit(code)


def _run(request: Request, command: list[str], emulated: str | None) -> int:
    gc.disable()  # in this short life it would look again and again through what is being imported: a twentieth of the time
    present = dict(os.environ)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of this short life: starting NumPy's threads costs more than all the rest
    from pumice.local import start

    start.refuse_nested(present)
    present, place, nvml = world(emulated, present)
    try:
        file, program = _program(command, present)
        with cards_of(nvml) as cards:
            begun = start.book(request, command, place, cards)
        if begun.note:
            print(f"pumice run: {begun.note}", file=sys.stderr)
        if place.machine is not None:
            print(f"pumice run: on the emulated machine {place.machine}, no real card is used", file=sys.stderr, flush=True)
        if os.path.basename(command[0]) in ELSEWHERE:
            print(f"pumice run: {ASKS_OTHERS.format(os.path.basename(command[0]))}", file=sys.stderr, flush=True)
        if begun.contested:
            from pumice.local import arbiter

            arbiter.start(place.directory)
        start.become(begun, file, program, place, library(), present)
    except FileNotFoundError:
        print(f"pumice run: {command[0]}: command not found{_hint(command)}", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"pumice run: {command[0]}: {error.strerror or 'cannot be run'}", file=sys.stderr)
        return NOT_RUNNABLE


def _hint(command: list[str]) -> str:
    """Return the nearest command to one that does not exist."""
    if "--" in command:
        return "; it stands before the --"
    if "/" not in command[0] and os.path.isfile(command[0]):
        runner = "python " if command[0].endswith(".py") else "./"
        return f"; a file of this name is here, so perhaps: {runner}{command[0]}"
    return ""


def _request(memory: str | None, cores: str, gpu: str | None, gpus: str | None, priority: str) -> Request:
    from pumice.local.request import parse_cards, parse_priority, parse_shares

    chosen = parse_cards(gpu, gpus, os.environ.get(variables.CUDA_VISIBLE_DEVICES))
    return parse_shares(memory, cores, chosen.cards, chosen.number, parse_priority(priority), chosen.source)


def world(emulated: str | None, present: dict[str, str]) -> tuple[dict[str, str], Place, Path | None]:
    """The environment to run in, where its bookings lie, and the NVML library to ask (None: the system's)."""
    from pumice.local import place as places

    if emulated is None and not present.get(variables.MACHINE):
        place = places.of_cards(present)
        if place.note and not place.used:  # once, until the directory goes with the next boot
            print(f"pumice run: {place.note}", file=sys.stderr)
        return present, place, None
    from pumice.cli.laboratory import driver_of_machines, machine_environment, the_machine

    if emulated and not os.path.exists(emulated) and _is_command(emulated, present):
        raise BadInput(NO_COMMAND.format(TOOK.format(emulated)))
    directory = the_machine(emulated, present)
    present = machine_environment(directory, present)
    os.environ[variables.MACHINE] = present[variables.MACHINE]  # NVML reads it when it is loaded
    return present, places.of_machine(directory), driver_of_machines()


def _program(command: list[str], present: dict[str, str]) -> tuple[str, list[str]]:
    """The file to run and its argument vector. ``pumice`` is this very one, on the search path or not."""
    from pumice.local.start import executable

    try:
        return executable(command, present.get("PATH", os.defpath)), command
    except FileNotFoundError:
        if command[0] != "pumice":
            raise
        return sys.executable, [sys.executable, "-m", "pumice", *command[1:]]


def _is_command(word: str, present: dict[str, str]) -> bool:
    try:
        return bool(_program([word], present))
    except OSError:
        return False


@contextmanager
def cards_of(nvml: Path | None) -> Iterator[Cards]:
    """The cards that NVML tells of; ``nvml`` is a library or its folder, None the system's. Raises Unavailable."""
    from pumice.adapters.nvml import NvmlCards
    from pumice.ports.cards import CardsUnavailable

    try:
        cards = NvmlCards(nvml or "")
    except CardsUnavailable as error:
        raise Unavailable(f"{error}; without a card, --emulated brings emulated ones") from error
    try:
        yield cards
    finally:
        cards.close()


def library() -> Path:
    """``libvgpu.so`` of this installation, by a path that the loader takes. Raises Unavailable when it is not built."""
    path = vgpu_library()
    if not path.is_file():
        raise Unavailable(f"{path}: the library that holds programs to their share is not there; build it with `make native`")
    return loadable(path)

