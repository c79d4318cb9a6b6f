"""``pumice machine``: make an emulated machine, look at it, and change it while programs run on it."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table

from pumice.cli import flags
from pumice.cli.completion import MODELS
from pumice.cli.output import Output, document
from pumice.model.amount import mebibytes
from pumice.model.errors import BadInput
from pumice.model.hardware import preset, preset_names
from pumice.wire import variables
from pumice_lab.cli.machine_npus import EXAMPLES, npus
from pumice_lab.machine import (
    FaultModel,
    Machine,
    MachineError,
    MachineModel,
    create,
    load_model,
    machine_of,
    open_machine,
)
from pumice_lab.machine.document import nearest
from pumice_lab.machine.model_file import FAULT_ANSWERS, answer_code, answer_name
from pumice_lab.machine.native import functions

MIB = 1 << 20
ENDED_SHOWN = 10

app = flags.App(group=True, help="Make an emulated machine with NVIDIA cards and change it while programs run on it.",
    epilog="Examples: pumice machine create ~/m --cards 2xA100-SXM4-40GB;  pumice machine show ~/m",
)


app.command("npus", epilog=EXAMPLES)(npus)


Directory = Annotated[Path, flags.Argument(envvar=variables.MACHINE, help="The machine directory.")]
Format = Annotated[Output, flags.Option("--output", "-o", help="How to print.")]


@app.command("create", epilog="Example: pumice machine create ~/m --cards 4xTesla-V100-SXM2-32GB --cards Tesla-T4")
def create_machine(
    directory: Annotated[Path, flags.Argument(help="Where to make it; must hold no machine yet.")],
    model: Annotated[Path | None, flags.Option("--model", "-f", help="A model file (YAML or TOML).")] = None,
    cards: Annotated[list[str] | None, flags.Option(help="Presets instead of a file: 2xA100-SXM4-40GB."), MODELS] = None,
    name: Annotated[str | None, flags.Option(help="Name of the machine; UUIDs follow from it.")] = None,
    virtual: Annotated[bool, flags.Option("--virtual", help="Let the machine live in its own, simulated time.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """Make an emulated machine from a model file or from presets."""
    with create(_model(directory, model, cards, name, virtual), directory) as machine:
        _show(machine, output)
    if output is Output.TEXT:
        print(f"export PUMICE_MACHINE={directory.resolve()}")


@app.command(epilog="Example: pumice machine show ~/m -o json")
def show(directory: Directory, output: Format = Output.TEXT) -> None:
    """Show the cards of a machine, and who holds and did what on them."""
    with open_machine(directory) as machine:
        _show(machine, output)


@app.command("set", epilog="Example: pumice machine set ~/m --card 1 --strangers 2000 --xid 79")
def set_card(
    directory: Directory,
    card: Annotated[int, flags.Option(help="The card's index.")] = 0,
    strangers: Annotated[str | None, flags.Option(metavar="AMOUNT", help="Memory used by processes unseen, as 2GiB.")] = None,
    xid: Annotated[int | None, flags.Option(min=1, help="Raise this Xid error.")] = None,
    lost: Annotated[
        bool | None, flags.Option("--lost/--found", help="The card falls off the bus / comes back.")
    ] = None,
    temperature: Annotated[int | None, flags.Option(min=0, max=150, metavar="°C", help="When idle.")] = None,
    advance_ms: Annotated[float | None, flags.Option(min=0, help="Push simulated time on.")] = None,
    output: Format = Output.TEXT,
) -> None:
    """Change a machine while programs run on it."""
    with open_machine(directory) as machine:
        machine.card(card)
        if strangers is not None:
            machine.set_stranger_memory(card, mebibytes("--strangers", strangers))
        if temperature is not None:
            machine.card(card).temperature_c = temperature
        if lost is not None:
            machine.lose_card(card, lost)
        if xid is not None:
            machine.raise_xid(card, xid)
        if advance_ms is not None:
            machine.clock.advance(int(advance_ms * 1e6))
        _show(machine, output)


@app.command(
    epilog="Examples: pumice machine faults ~/m --call cuMemAlloc --error 2; "
    " pumice machine faults ~/m --call cuLaunchKernel --delay-ms 200 --first 3"
)
def faults(
    directory: Directory,
    call: Annotated[str | None, flags.Option(help="Inject a fault into calls of this function.")] = None,
    error: Annotated[str | None, flags.Option(help="What the call answers: a name or a number.")] = None,
    first: Annotated[int, flags.Option(min=1, help="The first call concerned, 1 is the next.")] = 1,
    count: Annotated[int, flags.Option(min=0, help="How many calls; 0: for ever.")] = 1,
    delay_ms: Annotated[float, flags.Option(min=0, help="Wait so long before answering.")] = 0.0,
    crash: Annotated[bool, flags.Option("--crash", help="Kill the caller instead of answering.")] = False,
    clear: Annotated[bool, flags.Option("--clear", help="Take all faults away first.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """List the injected faults, add one, or take all away."""
    with open_machine(directory) as machine:
        if clear:
            machine.clear_faults()
        if call is not None:
            if call not in functions():
                raise BadInput(f"--call: {call!r} is no function of CUDA or NVML{_near(call)}")
            code = _code(error) if error else 0
            if not (code or delay_ms or crash):
                raise BadInput("--call: the fault does nothing; give it --error, --delay-ms or --crash")
            machine.set_fault(FaultModel(call, code, first, count, int(delay_ms * 1e6), crash))
        elif error or delay_ms or crash:
            raise BadInput("--error, --delay-ms and --crash need --call, the function they are about")
        rows = [_fault_row(found.fault, found.calls, found.hits) for found in machine.faults()]
    if output is Output.JSON:
        print(json.dumps(rows))
    elif rows:
        _print_table(rows)
    else:
        print("no faults")


@app.command(epilog="Example: pumice machine presets")
def presets(output: Format = Output.TEXT) -> None:
    """List the cards that --cards and a model file know by name."""
    rows = [
        {"preset": key, "name": card.name, "MiB": card.memory, "SMs": card.sms, "MIG": card.mig or "-"}
        for key, card in ((key, preset(key)) for key in preset_names())
    ]
    if output is Output.JSON:
        print(json.dumps(rows))
    else:
        _print_table(rows)


def _model(
    directory: Path, file: Path | None, cards: list[str] | None, name: str | None, virtual: bool
) -> MachineModel:
    if (file is None) == (not cards):
        raise BadInput("say which machine: either --model FILE or --cards PRESET (see `pumice machine presets`)")
    if file is not None:
        if name or virtual:
            raise BadInput("--name and --virtual go with --cards; a model file says both itself (machine, time)")
        return load_model(file)
    name = os.fsencode(name or directory.resolve().name).decode("utf-8", "replace")
    return machine_of(cards or [], name=name, virtual_time=virtual)


def _near(call: str) -> str:
    found = difflib.get_close_matches(call, functions(), n=1)
    return f'; did you mean "{found[0]}"?' if found else ""


def _code(error: str) -> int:
    code = int(error) if error.isdigit() else answer_code(error)
    if code is None:
        raise BadInput(f"--error: {error!r} is not an error of CUDA or NVML{nearest(error, FAULT_ANSWERS)}")
    return code


def _fault_row(fault: FaultModel, calls: int, hits: int) -> dict[str, Any]:
    answer = "killed" if fault.crash else answer_name(fault.call, fault.code) if fault.code else "-"
    concerned = f"{fault.first}-" if not fault.count else f"{fault.first}-{fault.first + fault.count - 1}"
    return {
        "call": fault.call,
        "answer": answer,
        "of calls": concerned,
        "delay ms": fault.delay_ns / 1e6,
        "calls seen": calls,
        "answered so": hits,
    }


def _show(machine: Machine, output: Output) -> None:
    described = _described(machine)
    if output is Output.JSON:
        print(document(described, 0))
        return
    print(
        f"{machine.directory}: {described['name']}, driver {described['driver']}, CUDA {described['cuda']},"
        f" {described['time']} time"
    )
    _print_table(described["cards"])
    living = [row for row in described["processes"] if row["state"] == "runs"]
    ended = [row for row in described["processes"] if row["state"] != "runs"]
    if living or ended:
        _print_table(living + ended[-ENDED_SHOWN:])
    if len(ended) > ENDED_SHOWN:
        print(f"and {len(ended) - ENDED_SHOWN} that ended before (-o json shows all)")


def _described(machine: Machine) -> dict[str, Any]:
    state = machine.state
    try:
        shares = machine.witness().shares
    except MachineError:  # the libraries are not built: nothing can have run on it
        shares = ()
    return {
        "directory": str(machine.directory),
        "name": state.hostname.decode(),
        "driver": state.driver_version.decode(),
        "cuda": f"{state.cuda_version // 1000}.{state.cuda_version % 1000 // 10}",
        "time": "virtual" if machine.clock.virtual else "real",
        "cards": [
            {
                "card": index,
                "name": card.name.decode(),
                "uuid": card.uuid.decode(),
                "pci": card.bus_id.decode(),
                "MiB": card.memory_bytes // MIB,
                "used MiB": (sum(s.bytes for s in shares if s.card == index) + card.stranger_bytes) // MIB,
                "SMs": card.sm_count,
                "MIG": ("on" if card.mig_mode else "off") if card.mig_capable else "-",
                "state": "lost" if card.lost else "ok",
            }
            for index, card in enumerate(machine.cards())
        ],
        "processes": [
            {
                "pid": share.pid,
                "name": share.name,
                "card": share.card,
                "MiB": share.bytes // MIB,
                "peak MiB": share.peak // MIB,
                "busy ms": share.busy_ns // 1_000_000,
                "launches": share.launches,
                "state": "runs" if share.live else "killed" if share.killed else "ended",
            }
            for share in shares
        ],
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for key, value in rows[0].items():
        table.add_column(key, justify="right" if isinstance(value, int | float) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{value:g}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # lines for a file or a pipe are not folded
    console.print(table)
