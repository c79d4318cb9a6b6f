"""``pumice explain``: why a pod waits and what would let it in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pumice.cli.casefile import Source, engine_of, picture
from pumice.cli.explanation import show
from pumice.engine.explaining.explain import explain
from pumice.model.errors import BadInput

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: pumice explain pod trainer-0 -n research")
def main(
    kind: Annotated[str, typer.Argument(metavar="pod", help="What to explain, only pods for now; pod/NAME is both.")],
    name: Annotated[str, typer.Argument(help="Name of the pod.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the pod.")] = "default",
    file: Annotated[Path | None, typer.Option("--from", help="Answer from a file written by `pumice dump`.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(envvar="KUBECONFIG", help="Kubeconfig file.")] = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="text, wide (every card) or json.")] = "text",
) -> None:
    """Say where a pod would go, or why no node takes it, card by card, and the smallest changes that would let it in."""
    if not name:
        kind, _, name = kind.partition("/")
    if kind not in ("pod", "pods", "po") or not name:
        raise BadInput(f"cannot explain {kind!r}; write: pumice explain pod {name or 'NAME'}")
    if "/" in name:
        namespace, _, name = name.partition("/")
    case = picture(Source(file=file, kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ())))
    pod = case.pod(namespace, name)
    show(explain(engine_of(case), pod, now=case.now), output)
