"""Filters and scores of one class of pods, as arrays over nodes or exactly on a few; nothing is remembered here.

``rows`` are rows of the ledger's table; None stands for all of them, and the arrays then have the table's capacity.

Among which nodes one pod may choose, and how it leans between them, beyond what holds for its whole class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pumice.devices.protocol import DeviceRequest, Fit
from pumice.model.cards import Allocation
from pumice.model.refusal import FitError
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.claim_search import ClaimSearch, Found
from pumice.scheduler.plugins.contract import Part, Scorer, Several, Verdict
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Amounts
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State


@dataclass(frozen=True, slots=True, eq=False)
class Among:
    """The nodes that a pod may have. ``rows``: nothing but these is asked at all, and the reasons count them alone.
    ``verdicts`` are over all rows."""

    rows: Rows | None
    verdicts: tuple[Verdict, ...]
    task_scores: NDArray[np.float64] | None

    def narrow(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """A copy of the scores, minus infinity where the pod may not go."""
        size = len(scores)
        found = scores + self.task_scores[:size] if self.task_scores is not None else scores.copy()
        found[~self.open(size)] = -np.inf
        return found

    def open(self, size: int) -> NDArray[np.bool_]:
        """Per row: may the pod go there, as far as its queue and its job are concerned?"""
        if self.rows is None:
            found = np.ones(size, bool)
        else:
            found = np.zeros(size, bool)
            found[self.rows] = True
        for verdict in self.verdicts:
            found &= ~verdict.failed[:size]
        return found


def among(framework: Framework, state: State, task: Task, rows: Rows | None = None) -> Among | None:
    """None where the pod is treated as every one of its class."""
    if not framework.minds_tasks:
        return None if rows is None else Among(rows, (), None)
    verdicts, task_scores = framework.bounds(state, task), framework.task_scores(state, task)
    if rows is None and not verdicts and task_scores is None:
        return None
    return Among(rows, verdicts, task_scores)


class Choice(Struct, frozen=True, gc=False):
    """The node and the cards of a pod of some class. Shared by its pods."""

    node: str
    row: int
    allocations: tuple[Allocation, ...]
    score: float
    claims: Found | None = None
    """Devices for the pod's claims; None where they are not searched for yet, or it has none."""


@dataclass(slots=True)
class Recipe:
    """The constant part of evaluating single rows for one class."""

    cls: PodClass
    requested: Amounts
    scorers: list[Scorer]
    several: list[Several]
    device_requests: list[tuple[DeviceRequest, DeviceTable]]
    constrained: bool = False
    """True if some filter may refuse a node, as of the nodes' version."""
    version: int = -1


SEARCHED = 16
"""Up to so many nodes that gained something are searched for devices of claims before their pods are tried again."""
Line = tuple[int, list[int], list[int]]
"""A row of the table: its number, what there is, what is used."""


def _has_room(requested: Amounts, line: Line) -> bool:
    _, have, used = line
    for column, amount in requested:  # noqa: SIM110 - asked of every row that changed: all() takes twice as long
        if have[column] - used[column] < amount:
            return False
    return True


class Evaluation:
    """The verdicts and votes of one framework on the nodes as they are now."""

    def __init__(self, state: State, framework: Framework) -> None:
        self.state = state
        self.framework = framework
        self.claims = ClaimSearch(state)
        self.tick: Callable[[], float] = perf_counter
        self.stages: list[tuple[str, float]] = []
        """Seconds of the array passes since the cycle began, as metrics know them: Predicate and Scoring."""

    def scores(self, cls: PodClass, rows: Rows | None) -> NDArray[np.float64]:
        """Per row the score, or minus infinity where the class does not fit, whatever pods run elsewhere."""
        began = self.tick()
        fits = self.fits(cls, rows, devices=False, part=Part.NODE)
        filtered = self.tick()
        scores = self.framework.scores(self.state, cls, rows)
        if scores is None:
            scores = np.zeros(len(fits))
        for device_request in cls.device_requests:
            fits, scores = self._device_scores(device_request, rows, fits, scores)
        if cls.device_claims:
            fits = self.claims.not_refused(cls, rows, fits)
        self.stages += (("Predicate", filtered - began), ("Scoring", self.tick() - filtered))
        return np.where(fits, scores, -np.inf)

    def recipe(self, cls: PodClass) -> Recipe:
        """Return the steps that judge single rows for a class, for as long as its arrays are kept."""
        ledger = self.state.ledger
        device_requests = [
            (device_request, ledger.device_tables[device_request.device_type]) for device_request in cls.device_requests
        ]
        return Recipe(cls, ledger.columns(cls.request), self.framework.scorers(self.state, cls),
                      self.framework.several(self.state, cls), device_requests)  # fmt: skip

    def few(self, recipe: Recipe, rows: list[int]) -> list[Choice]:
        """The same as ``scores`` for a handful of rows, with the exact choice of cards; rows that do not fit are left out."""
        table = self.state.ledger.table
        if recipe.version != table.version:
            recipe.version = table.version
            recipe.constrained = self.framework.constrains(self.state, recipe.cls, Part.NODE)
        left = [(row, table.alloc[row].tolist(), table.used[row].tolist()) for row in rows if table.live[row]]
        left = [line for line in left if _has_room(recipe.requested, line)]
        if left and recipe.constrained:
            array = np.array([row for row, _, _ in left], np.intp)
            fits = np.ones(len(left), bool)
            for verdict in self.framework.verdicts(self.state, recipe.cls, array, Part.NODE):
                fits &= ~verdict.failed
            left = [line for line, fit in zip(left, fits.tolist(), strict=True) if fit]
        if left and recipe.cls.device_claims:
            array = np.array([row for row, _, _ in left], np.intp)
            open_rows = self.claims.not_refused(recipe.cls, array, np.ones(len(left), bool))
            left = [line for line, fit in zip(left, open_rows.tolist(), strict=True) if fit]
        own = [several([row for row, _, _ in left]) for several in recipe.several] if left else []
        return [
            choice
            for place, line in enumerate(left)
            if (choice := self._one(recipe, *line, sum([scores[place] for scores in own]))) is not None
        ]

    def _one(self, recipe: Recipe, row: int, have: list[int], used: list[int], score: float) -> Choice | None:
        """A row that every filter passes, with its cards; ``score``: what it has by plugins that score several rows."""
        node, settings = self.state.ledger.table.name(row), self.state.settings
        allocations = []
        for scorer in recipe.scorers:
            score += scorer(row, have, used)
        for device_request, book in recipe.device_requests:
            fit = book.device_type.quick(device_request, book.view(node)) if node in book.nodes else None
            if fit is None:
                return None
            allocations.append(fit.allocation)
            score += settings.contribution(fit.score)
        return Choice(node, row, tuple(allocations), score)

    def fits(
        self, cls: PodClass, rows: Rows | None, *, devices: bool = True, part: Part = Part.ALL
    ) -> NDArray[np.bool_]:
        """Per row: does the node pass every filter for pods of this class right now?"""
        fits = self.idle(cls, rows)
        if not fits.any():
            return fits
        if self.framework.constrains(self.state, cls, part):
            for verdict in self.framework.verdicts(self.state, cls, rows, part):
                fits &= ~verdict.failed
        capacity = self.state.ledger.table.capacity
        for device_request in cls.device_requests:
            book = self.state.ledger.device_tables[device_request.device_type]
            fits &= book.has_cards(rows, capacity)
            ranked = book.rank(device_request, rows, capacity, fits) if devices else None
            if ranked is not None:
                fits &= ranked[0]
        if devices and cls.device_claims:
            fits = self.claims.not_refused(cls, rows, fits, exact=SEARCHED)
        return fits

    def _device_scores(
        self, device_request: DeviceRequest, rows: Rows | None, fits: NDArray[np.bool_], scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Add a device type's score; where it cannot rank by arrays, every node that is left is looked at exactly."""
        settings = self.state.settings
        book = self.state.ledger.device_tables[device_request.device_type]
        ranked = book.rank(device_request, rows, self.state.ledger.table.capacity, fits)
        if ranked is not None:
            may, device = ranked
            return fits & may, scores + settings.contribution(device)
        fits, scores = fits.copy(), scores.copy()
        table = self.state.ledger.table
        for place in np.flatnonzero(fits):
            row = int(place) if rows is None else int(rows[place])
            fit = self._quick_fit(device_request, table.name(row))
            if fit is None:
                fits[place] = False
            else:
                scores[place] += settings.contribution(fit.score)
        return fits, scores

    def idle(self, cls: PodClass, rows: Rows | None, *, future: bool = False) -> NDArray[np.bool_]:
        """Return where the requested resources fit (the core's own check, Volcano pkg/scheduler/util/predicate_helper.go step
        1)."""
        table = self.state.ledger.table
        fits = table.live.copy() if rows is None else table.live[rows]
        for column, amount in self.state.ledger.columns(cls.request):
            if rows is None:
                fits &= table.alloc[:, column] - table.used[:, column] >= amount
                continue
            free = table.alloc[rows, column] - table.used[rows, column]
            if future:
                free += table.releasing[rows, column] - table.pipelined[rows, column]
            fits &= free >= amount
        return fits

    def exact(self, device_request: DeviceRequest, node: str) -> Fit | FitError:
        """The choice of cards on that node, or why there is none."""
        book = self.state.ledger.device_tables[device_request.device_type]
        if node not in book.nodes:
            return book.device_type.no_devices(node)
        return book.device_type.fit(device_request, book.view(node))

    def _quick_fit(self, device_request: DeviceRequest, node: str) -> Fit | None:
        """The choice of cards, or None."""
        book = self.state.ledger.device_tables[device_request.device_type]
        return book.device_type.quick(device_request, book.view(node)) if node in book.nodes else None
