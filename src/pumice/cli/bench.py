"""``pumice bench NAME``: run the project's benchmarks, which live beside the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from pumice.model.refusal import BadInput

app = typer.Typer(add_completion=False)

BENCHMARKS = {
    "decide": ("benchmarks.bs1_decide", "BS1: placing in process, by nodes and request shapes, against a plain rescan"),
    "end-to-end": ("benchmarks.bs2_end_to_end", "BS2 to BS4, BS7: bursts, latency, gangs, hopeless pods over an API server"),
    "start": ("benchmarks.bs5_start", "BS5, BS6: start with many nodes and pods, memory, growth, idle"),
    "allocate": ("benchmarks.node_allocate", "The NVIDIA device plugin: preferred ids and Allocate over the real gRPC socket"),
    "backbone": ("benchmarks.backbone", "The whole house: pumice up, one pod, 1,000 pods on hollow nodes"),
}


@app.command(epilog="Example: pumice bench decide --quick")
def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHMARKS)}, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and sizes.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Keep the results in benchmarks/results.")] = False,
) -> None:
    """Run benchmarks; each checks its own result and prints JSON with the machine and the versions."""
    if name != "all" and name not in BENCHMARKS:
        raise BadInput(f"there is no benchmark {name!r}; one of {', '.join(BENCHMARKS)}, or all")
    root = Path(__file__).parents[3]
    if not (root / "benchmarks" / "bs1_decide.py").exists():
        raise BadInput("the benchmarks are part of the source tree, not of the installed package: run this in a checkout")
    flags = [flag for flag, given in (("--quick", quick), ("--save", save)) if given]
    failed = []
    for wanted in BENCHMARKS if name == "all" else [name]:
        module, text = BENCHMARKS[wanted]
        typer.echo(f"# {wanted}: {text}", err=True)
        if subprocess.run([sys.executable, "-m", module, *flags], cwd=root, check=False).returncode:
            failed.append(wanted)
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)
