"""Outcomes as rows of text, for terminals and the page alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pumice.simulation.outcome import Difference, Outcome, Part

Row = tuple[str, list[str]]
ALLOCATED = {"memory": "memory of cards", "cores": "cores of cards", "shares": "slots of cards", "cpu": "CPUs beside cards",
             "fragmentation": "fragmentation"}  # fmt: skip
OPTIONAL = ("cores", "cpu")


def is_shown(amount: str, outcomes: Sequence[Outcome]) -> bool:
    """Say whether a figure belongs into a report: cores and CPUs do where some pod asked for them."""
    return amount not in OPTIONAL or any(outcome.mean[amount] or outcome.end[amount] for outcome in outcomes)


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """Title and a cell for each outcome."""

    def row(title: str, cell: Callable[[Outcome], str]) -> Row:
        return title, [cell(outcome) for outcome in outcomes]

    found = [
        row("placed", lambda o: _placed(o.whole)),
        row("fit no empty node", lambda o: f"{len(o.fits_no_node):,}"),
        row("waiting, p50 / p99", lambda o: _waited(o.whole)),
        *(row(f"{title}, mean / end", lambda o, name=name: f"{o.mean[name]:.1f} / {o.end[name]:.1f} %")  # type: ignore[misc]
          for name, title in ALLOCATED.items() if is_shown(name, outcomes)),
        row("card-hours idle", lambda o: f"{o.idle_card_hours:,.1f}" if o.idle_card_hours else "0"),
        row("evictions", lambda o: f"{o.evictions:,}"),
        row("failures of nodes", lambda o: f"{o.failures:,}"),
        row("time played", lambda o: span(o.seconds) + (", cut short" if o.interrupted else "")),
    ]  # fmt: skip
    queues = sorted({name for outcome in outcomes for name in outcome.queues})
    for name in queues if len(queues) > 1 else ():
        found.append(row(f"queue {name}", lambda o, name=name: _part(o.queues.get(name))))  # type: ignore[misc]
    for name in dict.fromkeys(name for outcome in outcomes for name in outcome.classes):
        found.append(row(name, lambda o, name=name: _part(o.classes.get(name))))  # type: ignore[misc]
    return [(title, cells) for title, cells in found if title in ("placed",) or any(cell != "0" for cell in cells)]


def difference_lines(difference: Difference, most: int = 8) -> Iterator[str]:
    """Sentences with the names of pods."""
    than = f"{difference.variant}, against {difference.base}"
    for what, pods in (("placed only here", difference.placed_only_there), ("no longer placed", difference.placed_only_in_base),
                       ("sooner", difference.sooner), ("later", difference.later)):  # fmt: skip
        if pods:
            yield f"{than}: {len(pods):,} {what}: {_some(pods, most)}"


def why_lines(difference: Difference, base: Outcome, other: Outcome) -> Iterator[str]:
    """Return the reasons of pods that are placed in one of two plays alone, or later in the other."""
    for outcome, pods in ((other, difference.placed_only_in_base), (base, difference.placed_only_there),
                          (other, difference.later)):  # fmt: skip
        for pod in [pod for pod in pods if pod in outcome.reasons][:8]:
            yield f"{outcome.variant}: {pod} waited: {outcome.reasons[pod]}"


def reason_lines(outcome: Outcome, most: int = 8) -> Iterator[str]:
    """Sentences about pods that no node would take."""
    for reason, pods in _by_reason(outcome.fits_no_node):
        yield f"{outcome.variant}: fit no empty node: {_some(pods, most)}: {reason}"


def waiting_lines(outcome: Outcome, most: int = 8, reasons: int = 3) -> Iterator[str]:
    """Sentences about pods that wait at the end although a node would take them were it empty: so many reasons, those of most
    pods first."""
    waiting = {pod: outcome.reasons[pod] for pod in outcome.waits if pod in outcome.reasons and pod not in outcome.fits_no_node}
    for reason, pods in sorted(_by_reason(waiting), key=lambda found: -len(found[1]))[:reasons]:
        yield f"{outcome.variant}: {_pods(len(pods))} at the end: {_some(pods, most)}: {reason}"


def _by_reason(pods: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for pod, reason in pods.items():
        found.setdefault(reason, []).append(pod)
    return list(found.items())


def _some(pods: Sequence[str], most: int) -> str:
    return ", ".join(pods[:most]) + (f" and {len(pods) - most:,} more" if len(pods) > most else "")


def _pods(number: int) -> str:
    return "1 pod waits" if number == 1 else f"{number:,} pods wait"


def span(seconds: float) -> str:
    """A time in at most two units."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            rest = int(seconds % size // part)
            return f"{int(seconds // size):,} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{seconds:.0f} s"


def _placed(part: Part) -> str:
    return f"{part.placed:,} of {part.pods:,}"


def _waited(part: Part) -> str:
    return f"{span(part.wait_p50)} / {span(part.wait_p99)}"


def _part(part: Part | None) -> str:
    if part is None:
        return "–"
    return f"{_placed(part)}, {_waited(part)}" + (f", {part.card_hours:,.1f} card-hours" if part.card_hours else "")
