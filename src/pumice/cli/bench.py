"""``pumice bench NAME``: run the project's benchmarks, which live beside the sources (``benchmarks/running.py``)."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.model.errors import BadInput

app = flags.App()
ROOT = Path(__file__).parents[3]


@app.command(
    epilog="Example: pumice bench start-estimates --quick",
    lenient=True,
)
def main(
    context: flags.Context,
    name: Annotated[str, flags.Argument(help="Name of one (see --list), or all.")] = "",
    list_: Annotated[bool, flags.Option("--list", help="Say which there are.")] = False,
    quick: Annotated[bool, flags.Option("--quick", help="Fewer runs and sizes.")] = False,
    save: Annotated[bool, flags.Option("--save", help="Keep the results in benchmarks/results.")] = False,
) -> None:
    """Run benchmarks; each checks its own result and prints JSON and a table. Further flags go to the benchmark named.

    With KUBEBUILDER_ASSETS those over an API server use the real kube-apiserver and etcd. All are run even when one falls short
    or fails; a table at the end says which, and the exit code is 1. A quick run shows the figures that miss their goals and
    fails only where a result is wrong.
    """
    if not (ROOT / "benchmarks" / "running.py").exists():
        raise BadInput("the benchmarks are part of the source tree, not of the installed package: run this in a checkout")
    sys.path.insert(0, str(ROOT))
    import_module("benchmarks.running").run(ROOT, name, context.rest, list_=list_, quick=quick, save=save)
