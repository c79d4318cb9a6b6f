"""Reasons for which no node takes a pod: the reasons of all nodes, from the same filters that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pumice.devices.protocol import DeviceRequest, Fit
from pumice.model.refusal import FitError, Short
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.evaluation import Evaluation
from pumice.scheduler.plugins.contract import Verdict
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import amount_text, unit
from pumice.scheduler.state.state import State

Exact = Callable[[DeviceRequest, str], Fit | FitError]
"""The exact look at one node's cards."""


@dataclass(frozen=True, slots=True)
class Why:
    """The reasons for which no node took a pod: nodes per reason, and one refusal per node."""

    nodes: int
    counts: Mapping[str, int]
    fit_errors: tuple[FitError, ...] = ()
    final: bool = False
    """Every node refuses for good: only a change of nodes can help, not pods that leave."""

    @property
    def text(self) -> str:
        """``0/3 nodes are unavailable: 2 Insufficient cpu, ...`` (Volcano pkg/scheduler/cache/cache.go)."""
        if not (self.nodes or self.counts):
            return "0/0 nodes are unavailable"
        # what no node would take is said before there is one
        parts = ", ".join(sorted(f"{count} {reason}" if self.nodes else reason for reason, count in self.counts.items()))
        return f"0/{self.nodes} nodes are unavailable: {parts}."


def why_not(
    state: State, framework: Framework, evaluation: Evaluation, cls: PodClass, *, per_node: bool, rows: Rows | None = None,
    bounds: Iterable[Verdict] = (),
) -> Why:  # fmt: skip
    """Ask every node, or those ``rows``; ``per_node`` keeps one refusal for each. A node with a resource short hears of nothing
    else, nor does one that is out of ``bounds`` for this pod (verdicts over all rows)."""
    table = state.ledger.table
    rows = table.live_rows() if rows is None else rows[table.live[rows]]
    if cls.request.refused or cls.refusals:
        text = cls.request.refused or "; ".join(f"{r.field}: {r.text}" for r in cls.refusals)
        fit_errors = [FitError(table.name(int(r)), Short.REQUEST, text, final=True) for r in rows] if per_node else []
        return Why(len(rows), {text: len(rows)}, tuple(fit_errors))
    tally = _Tally(rows, [table.name(int(r)) for r in rows] if per_node else None)
    for verdict in bounds:
        tally.note(replace(verdict, failed=verdict.failed[rows], abort=True))
    for name, amount in cls.request.items:
        column = table.dim(name)
        have, used = table.alloc[rows, column], table.used[rows, column]
        failed, for_good = have - used < amount, have < amount
        numbers = _numbers(name, amount, have, used)
        tally.note(Verdict(failed & for_good, f"Insufficient {name}", final=True, abort=True), numbers)
        tally.note(Verdict(failed & ~for_good, f"Insufficient {name}", abort=True), numbers)
    for verdict in framework.verdicts(state, cls, rows):
        tally.note(verdict)
    by_devices = _device_reasons(state, evaluation.exact, cls, rows[tally.open_rows & ~tally.refused])
    if cls.device_claims:
        refused = {fit_error.node for fit_error in by_devices}
        left = [table.name(int(row)) for row in rows[tally.open_rows & ~tally.refused]]
        looked = (evaluation.claims.refusal(cls, node) for node in left if node not in refused)
        by_devices += [fit_error for fit_error in looked if fit_error is not None]
    for fit_error in by_devices:
        tally.counts[fit_error.text] = tally.counts.get(fit_error.text, 0) + 1
    fit_errors = [*tally.fit_errors, *by_devices] if per_node else []
    final = int(tally.for_good.sum()) + sum(fit_error.final for fit_error in by_devices) >= len(rows)
    return Why(len(rows), tally.counts, tuple(fit_errors), final)


Numbers = tuple[int, int, str]
"""The requested amount, the best available one, and both in words."""


def _numbers(name: str, amount: int, have: NDArray[np.int64], used: NDArray[np.int64]) -> Callable[[int], Numbers]:
    """Return what is wanted of a resource and what the node at one place in the rows has of it."""
    wanted = amount_text(name, amount)

    def at(place: int) -> Numbers:
        whole, taken = int(have[place]), int(used[place])
        text = f"{wanted} wanted, {amount_text(name, whole - taken)} of {amount_text(name, whole)} free"
        if whole < amount:
            text = f"{wanted} wanted, the node has {amount_text(name, whole)}"
        return -(-amount // unit(name)), max(0, whole - taken) // unit(name), text

    return at


@dataclass(slots=True)
class _Tally:
    """Reasons counted over nodes. ``names`` of the rows, where each node's own refusal is wanted."""

    rows: Rows
    names: list[str] | None
    counts: dict[str, int] = field(default_factory=dict)
    fit_errors: list[FitError] = field(default_factory=list)
    open_rows: NDArray[np.bool_] = field(init=False)
    refused: NDArray[np.bool_] = field(init=False)
    for_good: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.open_rows = np.ones(len(self.rows), bool)
        self.refused, self.for_good = np.zeros(len(self.rows), bool), np.zeros(len(self.rows), bool)

    def note(self, verdict: Verdict, numbers: Callable[[int], Numbers] = lambda at: (0, 0, "")) -> None:
        """``numbers`` are those of one place in ``rows``."""
        hit = verdict.failed & self.open_rows
        number = int(hit.sum())
        if not number:
            return
        self.counts[verdict.text] = self.counts.get(verdict.text, 0) + number
        self.refused |= hit
        if verdict.final:
            self.for_good |= hit
        if self.names is not None:
            for at in np.flatnonzero(hit).tolist():
                wanted, best, text = numbers(at)
                self.fit_errors.append(
                    FitError(self.names[at], verdict.short, verdict.text, wanted, best, verdict.final, detail=text)
                )
        if verdict.abort:
            self.open_rows &= ~hit


def _device_reasons(state: State, exact: Exact, cls: PodClass, rows: Rows) -> list[FitError]:
    table = state.ledger.table
    found = []
    for device_request in cls.device_requests:
        device_table = state.ledger.device_tables[device_request.device_type]
        like = device_table.alike(device_request)
        known: dict[int, tuple[str, Fit | FitError]] = {}
        for row in rows.tolist():
            node, number = table.name(row), like(row)
            first = None if number is None else known.get(number)
            answer = exact(device_request, node) if first is None else first[1]
            if first is None and number is not None:
                known[number] = node, answer
            if isinstance(answer, FitError):
                found.append(answer if first is None else device_table.moved(answer, first[0], node))
    return found
