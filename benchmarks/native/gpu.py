"""libvgpu's experiments E0 to E15: on a real card where there is one, else what the emulated machine can carry.

    python -m benchmarks.native.gpu [--minutes 10] [--only E4,E5] [--quick] [--out DIR] [--save]

Within the minutes, with shorter runs where they are not enough for the whole lengths (40 on a real card). Each experiment
writes its JSON, and its plots beside it, as soon as it is done; a page, README.md, says at the end what holds and what was not
run, and why. A figure of the emulated machine stands under that name and is never a GPU's: there the experiments try
themselves out, in real time, beside whatever else the computer does.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kit.results import RESULTS, environment
from rich.console import Console
from rich.table import Table

from benchmarks.native.experiments import page
from benchmarks.native.experiments.catalogue import EXPERIMENTS
from benchmarks.native.experiments.rig import NotRun, Report, Rig, open_rig
from benchmarks.native.harness import build
from benchmarks.report import SHORT

MINUTES = 10
LAST = ("E13", "E14", "E15")  # time is kept for them


def time_is_over(_signal: int, _frame: object) -> None:
    raise NotRun("the time for all of them was over (--minutes)")


def run(name: str, rig: Rig, seconds: float) -> dict[str, Any]:
    """One experiment; its result says what was found, or why it was not run, or how it ended too early."""
    experiment, report, begun = EXPERIMENTS[name], Report(), time.monotonic()
    result: dict[str, Any] = {"experiment": name, "title": experiment.title, "device": rig.device}
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
        report = experiment.run(rig)
    except NotRun as reason:
        result["not run"] = str(reason)
    except Exception as error:  # one that ends early must not take the others along
        result["ended early"] = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    result |= {"seconds": round(time.monotonic() - begun, 1), "figures": report.figures, "goals": report.goals,
               "parts not run": report.not_run}  # fmt: skip
    return {**result, "plots": report.plots}


def write(result: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    result["pictures"] = {name: f"{result['experiment']} {name}.svg".replace(" ", "-") for name in result["plots"]}
    for name, picture in result.pop("plots").items():
        (folder / result["pictures"][name]).write_text(picture)
    text = json.dumps({**environment(), **result}, indent=2, default=str)
    (folder / f"{result['experiment']}.json").write_text(text + "\n")


def print_table(results: list[dict[str, Any]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("", "experiment", "s", "goals met", "short of its goal, or not run")
    for result in results:
        met = sum(goal["met"] for goal in result["goals"])
        words = [f"{goal['what']}: {goal['value']:g} {goal['unit']} ({goal['goal']})".replace(" (", " (")
                 for goal in result["goals"] if not goal["met"]]  # fmt: skip
        words += [f"not run: {result['not run']}"] if "not run" in result else []
        words += [f"ended early: {result['ended early']}"] if "ended early" in result else []
        words += [f"{part}: not run, {reason}" for part, reason in result["parts not run"].items()]
        verdict = f"{met}/{len(result['goals'])}" if result["goals"] else ""
        table.add_row(result["experiment"], result["title"], f"{result['seconds']:g}", verdict, "\n".join(words))
    console.print(results[0]["device"] if results else "", highlight=False)
    console.print(table)


def wanted(text: str | None, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip().upper() for name in text.split(",")] if text else list(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            parser.error(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="some of E0 to E15, with commas")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of them together (%(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="short runs on a real card too: to see whether all of it works"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the page, the JSON and the plots go (gpu-report)")
    parser.add_argument("--save", action="store_true", help="keep them in benchmarks/results/gpu, by the card's name")
    arguments = parser.parse_args()
    names = wanted(arguments.only, parser)
    build()
    with tempfile.TemporaryDirectory() as temporary:
        quick = arguments.quick or arguments.minutes < sum(EXPERIMENTS[name].minutes for name in names)
        begun = time.monotonic()
        rig = open_rig(Path(temporary), quick)
        slug = re.sub(r"[^a-z0-9]+", "-", ("emulated " * rig.emulated + rig.card).lower()).strip("-")
        folder: Path = arguments.out or (RESULTS / "gpu" / slug if arguments.save else Path("gpu-report") / slug)
        signal.signal(signal.SIGALRM, time_is_over)
        results = []
        for number, name in enumerate(names):
            kept = 60 * sum(EXPERIMENTS[later].minutes for later in names[number + 1 :] if later in LAST)
            result = run(name, rig, 60 * arguments.minutes - kept - (time.monotonic() - begun))
            write(result, folder)
            results.append(result)
            print(f"{name}: {result['seconds']:g} s", file=sys.stderr, flush=True)
    took = (time.monotonic() - begun) / 60
    (folder / "README.md").write_text(page.render(results[0]["device"], results, environment(), took))
    print_table(results)
    print(f"{page.verdict(results)} The page: {folder / 'README.md'}")
    short = any("ended early" in result or any(not goal["met"] for goal in result["goals"]) for result in results)
    return SHORT if short else 0


if __name__ == "__main__":
    sys.exit(main())
