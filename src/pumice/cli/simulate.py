"""``pumice simulate``: play who arrives on a cluster, in variants, and compare."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.daemon import duration
from pumice.cli.output import document, plain, writable

if TYPE_CHECKING:
    from pumice.cli.simulation_inputs import Variant
    from pumice.simulation.outcome import Difference, Outcome

app = flags.App()

Many = list[str] | None
Files = list[Path] | None
SHOWN_EVERY = 0.2
"""Seconds between two looks at the progress."""


@app.command(
    epilog="Examples: pumice simulate --from case.json --add nodes=10,model=H100;  "
    "pumice simulate --add nodes=9,model=L4 --generate pods=99,shape=mixed"
)
def simulate(
    file: Annotated[Path | None, flags.Option("--from", help="The cluster, from a file written by `pumice dump`.")] = None,
    kubeconfig: Annotated[Path | None, flags.Option(help="The cluster, as it is now behind this kubeconfig.")] = None,
    trace: Annotated[Files, flags.Option(help="CSV of the public trace: nodes or pods, as its columns say.")] = None,
    manifest: Annotated[Files, flags.Option("-f", "--filename", help="Nodes, queues, pods, workloads and Jobs in YAML.")] = None,
    generate: Annotated[Many, flags.Option(help="Pods of named distributions: pods=, shape=, arrival=, duration=, …")] = None,
    policy: Annotated[Many, flags.Option(help="A variant with this policy of cards; may be given again.")] = None,
    conf: Annotated[Files, flags.Option(help="A variant with this scheduler configuration; may be given again.")] = None,
    add: Annotated[Many, flags.Option(help="A variant with more nodes: nodes=10,model=H100.")] = None,
    recut: Annotated[Many, flags.Option(help="A variant with another MIG cut: NODE=all-1g, NODE=all-disabled.")] = None,
    without: Annotated[Many, flags.Option(help="A variant without queue=NAME, node=NAME or namespace=NAME.")] = None,
    fail: Annotated[Many, flags.Option(help="Failures: node=NAME,at=1h,for=10m, or of all every=720h,for=4h.")] = None,
    period: Annotated[str, flags.Option(help="Least time between cycles; 1s as Volcano's is faster to play.")] = "0s",
    seed: Annotated[int, flags.Option(help="Seed of all that is drawn.")] = 1,
    html: Annotated[Path | None, flags.Option(help="Also write one page with pictures to this file.")] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="table or json.")] = "table",
) -> None:
    """Play arrivals, departures and failures through the scheduler's own engine in simulated time, and compare variants.

    Every placement is checked by an auditor that knows nothing of the engine; exit code 1 when it finds a fault. Ctrl-C ends a
    play with what is known until then.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.simulation_inputs import Inputs, variants_of
    from pumice.model.errors import BadInput, nearest
    from pumice.simulation.outcome import difference

    if output not in ("table", "json"):
        raise BadInput(f"-o {output!r}: table or json{nearest(output, ('table', 'json'))}")
    asked = Inputs(file, kubeconfig, trace or (), manifest or (), generate or (), policy or (), conf or (), add or (),
                   recut or (), without or (), fail or (), seed)  # fmt: skip
    pause = duration("--period", period)
    writable(html)
    outcomes: list[Outcome] = []
    variants = variants_of(asked)
    with _interruptible() as interrupted:
        for variant in variants:
            if not interrupted:
                outcomes.append(_played(variant, pause, interrupted))
    for variant in variants[len(outcomes) :]:
        print(f"interrupted: {plain(variant.name)} was not played", file=sys.stderr)
    differences = [difference(outcomes[0], other) for other in outcomes[1:]]
    if output == "json":
        print(document({"seed": seed, "variants": outcomes, "differences": differences}))
    else:
        print_outcomes(outcomes, differences)
    if html is not None:
        from pumice.simulation.page import page

        html.write_text(page(outcomes, differences, f"Seed {seed}; times are virtual."), "utf-8", "replace")
    for outcome in outcomes:
        for text in outcome.violations:
            print(plain(f"{outcome.variant}: {text}"), file=sys.stderr)
    if interrupted:
        raise KeyboardInterrupt
    if any(outcome.violations for outcome in outcomes):
        raise SystemExit(1)


def _played(variant: Variant, period: float, interrupted: list[int]) -> Outcome:
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.simulation.outcome import outcome_of
    from pumice.simulation.play import Simulation

    simulation = Simulation(engine_of(variant.case), variant.case.now, variant.case.objects, period)
    shown, arrived, terminal = 0.0, 0, sys.stderr.isatty()
    gc.freeze()  # what is there stays; to look through it again and again takes a third of the time
    for arrived in simulation.play(variant.submissions, variant.outages):
        if interrupted:
            break
        if terminal and time.monotonic() > shown + SHOWN_EVERY:
            shown = time.monotonic()
            sys.stderr.write(f"\r\033[K{variant.name}: {arrived:,} of {len(variant.submissions):,} arrivals; Ctrl-C ends it")
            sys.stderr.flush()
    if terminal:
        sys.stderr.write("\r\033[K")
    return outcome_of(variant.name, simulation, len(variant.submissions), arrived)


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Collect the first interrupt; the second one ends the program as ever."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def print_outcomes(outcomes: list[Outcome], differences: list[Difference]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from pumice.cli.tables import print_whole, wide_console
    from pumice.simulation.report import difference_lines, reason_lines, rows_of, waiting_lines

    console, _ = wide_console()
    table = Table("", *(escape(plain(outcome.variant)) for outcome in outcomes), box=None, pad_edge=False)
    for title, cells in rows_of(outcomes):
        table.add_row(escape(plain(title)), *cells)
    print_whole(console, table)
    lines = [line for one in differences for line in difference_lines(one)]
    lines += [*reason_lines(outcomes[0]), *(line for outcome in outcomes for line in waiting_lines(outcome))]
    for line in lines:
        print(plain(line))
