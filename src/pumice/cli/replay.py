"""``pumice replay``: repeat the decisions of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.output import document

app = flags.App()


@app.command(epilog="Example: pumice replay case.json")
def replay(
    file: Annotated[Path, flags.Argument(help="A file written by `pumice dump`.")],
    output: Annotated[str, flags.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Run one cycle on the picture in the file and compare with the decisions that were written into it.

    Exit code 1 when they differ: another version of Pumice, or another configuration, decides otherwise.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.casefile import decisions_of, load

    case = load(file)
    now = decisions_of(case)
    if output == "json":
        print(document({"same": now == case.decisions, "decisions": now, "written": case.decisions}))
    else:
        for decision in now:
            mark = " " if decision in case.decisions else "+"
            print(f"{mark} {sentence(decision)}")
        for decision in case.decisions:
            if decision not in now:
                print(f"- {sentence(decision)}")
        print("the same decisions as in the file" if now == case.decisions else "the decisions differ (+ now, - in the file)")
    if now != case.decisions:
        raise SystemExit(1)


def sentence(decision: dict[str, str]) -> str:
    """One decision as people read it."""
    if "waits" in decision:
        return f"{decision['pod']} waits: {decision['waits']}"
    devices = f" with {decision['devices']}" if decision.get("devices") else ""
    return f"{decision['pod']} -> {decision['node']}{devices}"
