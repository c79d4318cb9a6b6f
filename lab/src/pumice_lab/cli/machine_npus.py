"""``pumice machine npus``: the NPUs of an emulated machine."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pumice.cli import flags
from pumice.cli.output import Output
from pumice.model.errors import BadInput
from pumice.ports.slices import UNOPENED
from pumice.wire import variables
from pumice_lab.machine.npus import (
    NpuChip,
    NpuFaultModel,
    clear_npu_faults,
    create_npus,
    lose_chip,
    npu_environment,
    read_npus,
    set_health,
    set_npu_fault,
)

EXAMPLES = (
    "Examples: pumice machine npus ~/m --make 2x310P3 --make 910B4;  pumice machine npus ~/m --chip 1 --health alarm"
    " --code 0x80E01801;  pumice machine npus ~/m --call dcmi_create_vdevice --error -8020"
)


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ALARM = "alarm"
    CRITICAL = "critical"


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


def npus(
    directory: Annotated[Path, flags.Argument(envvar=variables.MACHINE, help="The machine directory.")],
    make: Annotated[list[str] | None, flags.Option(help="Put these NPUs into it: 2x310P3.")] = None,
    chip: Annotated[int, flags.Option(min=0, help="The NPU that is changed.")] = 0,
    health: Annotated[Health | None, flags.Option(help="What its driver says of it.")] = None,
    code: Annotated[list[str] | None, flags.Option(help="An error code that goes with it, as 0x80E01801.")] = None,
    lost: Annotated[bool | None, flags.Option("--lost/--found", help="It falls off the bus / comes back.")] = None,
    call: Annotated[str | None, flags.Option(help="Inject a fault into the next call of this function.")] = None,
    error: Annotated[int, flags.Option(help="What the call answers.")] = 0,
    crash: Annotated[Moment | None, flags.Option(help="Kill the caller, before the call has done anything or after.")] = None,
    clear: Annotated[bool, flags.Option("--clear", help="Take all faults away first.")] = False,
    output: Annotated[Output, flags.Option("--output", "-o", help="How to print.")] = Output.TEXT,
) -> None:
    """Put NPUs into a machine, change them while programs run on them, and show them with their slices."""
    if make:
        create_npus([one for word in make for one in _chips(word)], directory, directory.resolve().name)
    state = read_npus(directory)
    if chip >= state.chip_count:
        raise BadInput(f"--chip: {chip} is none of its {state.chip_count} NPUs")
    if health is not None:
        set_health(directory, chip, list(Health).index(health), *map(_code, code or ()))
    elif code:
        raise BadInput("--code goes with --health")
    if lost is not None:
        lose_chip(directory, chip, lost)
    if clear:
        clear_npu_faults(directory)
    if call is not None:
        if not error and crash is None:
            raise BadInput("--call: the fault does nothing; give it --error or --crash")
        set_npu_fault(directory, NpuFaultModel(call, error, crash=crash.value if crash else ""))
    elif error or crash:
        raise BadInput("--error and --crash need --call, the function they are about")
    rows = [_row(row) for row in read_npus(directory).chips[: state.chip_count]]
    if output is Output.JSON:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['chip']}  {row['name']:<10} {row['health']:<9}{'lost' if row['lost'] else ''}")
        for slice_ in row["slices"]:
            print(f"   vNPU {slice_['id']}  {slice_['template']:<14} {slice_['container']}")
    if make:
        print("\n".join(f"export {key}={value}" for key, value in npu_environment(directory).items() if key == variables.MACHINE))


def _chips(word: str) -> list[str]:
    match = re.fullmatch(r"(?:(\d{1,2})x)?(.+)", word)
    assert match is not None
    return [match[2]] * int(match[1] or 1)


def _code(text: str) -> int:
    try:
        value = int(text, 16)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 32:
        raise BadInput(f"--code: {text!r} is no error code; write it as 0x80E01801")
    return value


def _row(row: NpuChip) -> dict[str, Any]:
    slices = [
        {"id": s.id, "template": row.templates[s.template].name.decode(), "container": f"{s.container & UNOPENED:012x}"}
        for s in row.slices if s.used
    ]  # fmt: skip
    return {
        "chip": row.physical, "name": row.name.decode(), "health": list(Health)[min(row.health, 3)].value,
        "codes": [f"0x{code:08X}" for code in row.errors[: row.error_count]], "lost": bool(row.gone), "slices": slices,
    }  # fmt: skip
