"""``pumice defrag``: which running pods would be moved so that a waiting one starts or cards come free, and moving them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.daemon import duration
from pumice.cli.output import document, writable
from pumice.model.errors import BadInput, nearest

if TYPE_CHECKING:
    from pumice.cli.cluster_snapshot import ClusterSnapshot
    from pumice.scheduler.cycle.defragmenting.asking import Limits
    from pumice.scheduler.explaining.moves import Goal
    from pumice.simulation.moving import Answer, Outlook, Place

app = flags.App(group=True, help="Move running pods so that a waiting one starts, or cards come free.",
                epilog="Example: pumice defrag plan --for research/trainer-0")  # fmt: skip

STAYING = 8
"""Reasons why pods stay that are named to people."""
For = Annotated[
    str, flags.Option("--for", help="What shall start: pod NAME or podgroup NAME, as pod/NAMESPACE/NAME; a name alone is a pod.")
]
FreeCards = Annotated[int, flags.Option(help="Instead: so many cards shall hold nobody.", min=0)]
Model = Annotated[str, flags.Option(help="With --free-cards: only cards with this in the name of their model.")]
MaxMoves = Annotated[int, flags.Option(help="Move so many pods at most.", min=1, max=16)]
MinAge = Annotated[str, flags.Option(help="Move no pod that has run for less than this.")]
Kubeconfig = Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file.")]
SchedulerNames = Annotated[
    list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
]
Output = Annotated[str, flags.Option("-o", "--output", help="text or json.")]


@app.command(epilog="Examples: pumice defrag plan --for research/trainer-0;  pumice defrag plan --free-cards 2 --model A100")
def plan(
    wanted: For = "",
    free_cards: FreeCards = 0,
    model: Model = "",
    max_moves: MaxMoves = 4,
    min_age: MinAge = "5m",
    file: Annotated[Path | None, flags.Option("--from", help="Answer from a file written by `pumice dump`.")] = None,
    kubeconfig: Kubeconfig = None,
    scheduler_name: SchedulerNames = None,
    html: Annotated[Path | None, flags.Option(help="Also write one page with a picture of the cards to this file.")] = None,
    output: Output = "text",
) -> None:
    """Say which pods would move to which card, what starts then and what it costs. Nothing is moved.

    Exit code 0 with a plan or where none is needed, 1 where none was found.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.snapshot_source import Source, take_snapshot

    goal, limits = goal_of(wanted, free_cards, model), limits_of(max_moves, min_age)
    _known(output)
    writable(html)
    case = take_snapshot(Source(file=file, kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ())))
    answer = answered(case, goal, limits)
    show(answer, output)
    if html is not None:
        from pumice.cli.cluster_snapshot import engine_of
        from pumice.simulation.pictures import cards_of, moves_page, nodes_of

        html.write_text(moves_page(answer, cards_of(engine_of(case), nodes_of(answer))), "utf-8", "replace")
    if not answer.moves and not answer.reached:
        raise SystemExit(1)


@app.command(epilog="Example: pumice defrag apply --for research/trainer-0 --max-moves 1")
def apply(
    wanted: For = "",
    free_cards: FreeCards = 0,
    model: Model = "",
    max_moves: MaxMoves = 4,
    min_age: MinAge = "5m",
    kubeconfig: Kubeconfig = None,
    scheduler_name: SchedulerNames = None,
) -> None:
    """Plan, and move the pods: one eviction after the other, each within its PodDisruptionBudgets.

    Before each step the cluster is looked at again; it stops where something differs from the plan. Exit code 1 when the goal is
    not met.
    """
    import asyncio
    from uuid import uuid4

    # Only here: help and completion need no engine and no client.
    from pumice.adapters.kube import KubeClient
    from pumice.apps.moving import Mover
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.cli.daemon import access_to_ask
    from pumice.cli.snapshot_source import Source, refreshed, take_snapshot
    from pumice.simulation.moving import outlook

    goal, limits = goal_of(wanted, free_cards, model), limits_of(max_moves, min_age)
    source = Source(kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ()))
    case = take_snapshot(source)
    before, earlier = taken_over(case, goal.text)
    answer = answered(opened(case, goal.text), goal, limits)
    show(answer, "text")

    async def run() -> str:
        async with KubeClient(access_to_ask(source.kubeconfig)) as kube:

            async def again(done: int, moved: Sequence[str]) -> Outlook:
                case = opened(await refreshed(kube, source), goal.text)
                return outlook(lambda: engine_of(case), case.objects, case.now, answer, done, moved, limits)

            mover = Mover(kube, again, asyncio.sleep, time.time, nodes=before, run=uuid4().hex[:8], earlier=earlier)
            return await (mover.carry_out(answer) if answer.moves else mover.open(goal.text))

    why = asyncio.run(run()) if answer.moves or before else ""
    if why:
        print(f"stopped: {why}", file=sys.stderr)
        raise SystemExit(1)
    if not answer.moves:
        raise SystemExit(0 if answer.reached else 1)
    print(f"{answer.goal}: done")


def taken_over(case: ClusterSnapshot, goal: str) -> tuple[set[str], frozenset[str]]:
    """The nodes on which earlier runs for the same goal hold places, and these runs. Raises BadInput where a run for another goal
    does."""
    from pumice.apps.moving import held_for
    from pumice.wire import names
    from pumice.wire.held_places import parse_held_for

    found, runs = set(), set()
    for node in case.objects.get("nodes", ()):
        name, notes = node["metadata"]["name"], node["metadata"].get("annotations") or {}
        other, _ = held_for(notes, case.now)
        if other and other != goal:
            raise BadInput(f"places on {name} are held for {other} by another pumice defrag apply; one that was killed is ended "
                           "by the same command again, or by itself after some minutes")  # fmt: skip
        of, run = parse_held_for(notes.get(names.HELD_FOR_MOVES, ""))
        if of == goal:
            found.add(name)
            runs.add(run)
    return found, frozenset(runs)


def opened(case: ClusterSnapshot, goal: str) -> ClusterSnapshot:
    """The snapshot as it is when no places are held for the goal."""
    from pumice.wire import names
    from pumice.wire.held_places import parse_held_for

    for node in case.objects.get("nodes", ()):
        notes = node["metadata"].get("annotations") or {}
        if parse_held_for(notes.get(names.HELD_FOR_MOVES, ""))[0] == goal:
            notes.pop(names.HELD_PLACES, None)
    return case


def goal_of(wanted: str, free_cards: int, model: str) -> Goal:
    """Raises BadInput where it is not exactly one goal."""
    from pumice.scheduler.explaining.moves import ForCards, ForGroup, ForPod

    if bool(wanted) == bool(free_cards):
        raise BadInput("name one goal: --for NAMESPACE/NAME, or --free-cards N")
    if free_cards:
        return ForCards(free_cards, model)
    if model:
        raise BadInput("--model goes with --free-cards")
    kinds: dict[str, type[ForPod | ForGroup]] = {
        "pod": ForPod, "po": ForPod, "pods": ForPod, "podgroup": ForGroup, "pg": ForGroup, "podgroups": ForGroup,
    }  # fmt: skip
    first, _, rest = wanted.replace(" ", "/").partition("/")
    kind = kinds.get(first) if rest else None
    namespace, slash, name = (rest if kind else wanted).rpartition("/")
    if not name or "/" in namespace:
        raise BadInput(f"--for {wanted!r}: write NAMESPACE/NAME of a pod, or podgroup/NAMESPACE/NAME{nearest(first, kinds)}")
    return (kind or ForPod)(namespace if slash else "default", name)


def limits_of(max_moves: int, min_age: str) -> Limits:
    from pumice.scheduler.cycle.defragmenting.asking import Limits

    return Limits(max_moves, duration("--min-age", min_age))


def answered(case: ClusterSnapshot, goal: Goal, limits: Limits) -> Answer:
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.simulation.moving import planned

    return planned(lambda: engine_of(case), case.objects, case.now, goal, limits)


def _known(output: str) -> None:
    if output not in ("text", "json"):
        raise BadInput(f"-o {output!r}: text or json{nearest(output, ('text', 'json'))}")


def show(answer: Answer, output: str) -> None:
    """Print it."""
    if output == "json":
        print(document(answer))
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(answer.goal)}[/bold]: {escape(answer.summary)}")
    if answer.moves:
        _print_moves(answer)
        for start in answer.starts:
            console.print(f"  {escape(start.pod)} starts on {escape(place(start.target))}")
        for free in answer.frees:
            console.print(f"  {escape(free.node)} card {free.card} ({escape(free.model)}) is free")
        budgets = f", {len(answer.cost.budgets)} PodDisruptionBudgets touched" if answer.cost.budgets else ""
        restarts = f"{answer.cost.restarts} restart{'' if answer.cost.restarts == 1 else 's'}"
        console.print(f"  cost: {restarts}, {span(answer.cost.lost)} of work lost{budgets}")
        for move in answer.moves:
            if move.doubt:
                console.print(f"  {escape(move.pod)}: its checkpoint is not believed: {escape(move.doubt)}")
        if not answer.fewest:
            console.print(f"  fewer moves are not excluded: the search ended after {answer.looks} looks")
    for stays in answer.stays[:STAYING] if not answer.moves else ():
        pods = "1 pod stays" if stays.number == 1 else f"{stays.number} pods stay"
        console.print(f"  {pods}: {escape(stays.reason)} ({escape(stays.pod)})")


def _print_moves(answer: Answer) -> None:
    from rich.markup import escape
    from rich.table import Table

    from pumice.cli.tables import GAP, print_whole, wide_console

    titles = ("STEP", "POD", "FROM", "TO", "LOSES", "BUDGETS")
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="")
    for title in titles:
        shown.add_column(title)
    for step, move in enumerate(answer.moves, 1):
        to = place(move.target) + (" (later)" if move.waits else "")
        lost = f"{span(move.lost)} since its {move.since}"
        cells = (str(step), move.pod, place(move.source), to, lost, ", ".join(move.budgets))
        shown.add_row(*map(escape, cells))
    print_whole(wide_console()[0], shown)


def place(found: Place) -> str:
    cards = ", ".join(
        f"card {held.card}: {held.slice or f'{held.memory} MiB'}" + (f" {held.cores} %" if held.cores and not held.slice else "")
        for held in found.cards
    )
    return f"{found.node} {cards}" if cards else found.node


def span(seconds: int) -> str:
    """A length of time for people, in minutes or hours."""
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
