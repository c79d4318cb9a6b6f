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
    from pumice.cli.cluster_snapshot import decisions_of, save
    from pumice.cli.snapshot_source import Source, take_snapshot

    snapshot = take_snapshot(Source(kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ()), runs=True))
    snapshot.decisions = decisions_of(snapshot)
    text = save(snapshot)
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        output.write_text(text + "\n", "utf-8")
        print(f"{output}: {len(snapshot.objects['nodes'])} nodes, {len(snapshot.objects['pods'])} pods")
