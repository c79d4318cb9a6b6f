"""``pumice dump``: write what the scheduler sees to one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pumice.cli import flags

app = flags.App()

Kubeconfig = Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file.")]


@app.command(epilog="Examples: pumice dump > case.json;  pumice explain --from case.json pod my-pod")
def dump(
    kubeconfig: Kubeconfig = None,
    scheduler_name: Annotated[
        list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
    output: Annotated[Path | None, flags.Option("-o", "--output", help="File to write; standard output without it.")] = None,
) -> None:
    """Write nodes, pods, queues and configuration to one JSON file, cut down to what decisions look at.

    The file holds no environment variables, commands or images' secrets, and the decisions that follow from it.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.casefile import decisions_of, save
    from pumice.cli.picture import Source, picture

    case = picture(Source(kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ()), runs=True))
    case.decisions = decisions_of(case)
    text = save(case)
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        output.write_text(text + "\n", "utf-8")
        print(f"{output}: {len(case.objects['nodes'])} nodes, {len(case.objects['pods'])} pods")
