"""Commands that parse their own arguments, as an application of the command line's framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer


def application(main: Callable[[Sequence[str]], int]) -> typer.Typer:
    """An application that hands its arguments to ``main`` as they are and ends with its exit code."""

    def run(context: typer.Context) -> None:
        raise SystemExit(main(context.args))

    run.__annotations__["context"] = typer.Context
    app = typer.Typer(add_completion=False)
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(context_settings=settings)(run)
    return app
