"""Placing by class: filter and score all nodes once per class, then look at changed rows only.

``Placer.choose`` answers for one pod of a class: the best node, with the cards. What it remembers (``kept``) stands under the
class's base, which other pods do not matter to; what pods elsewhere mean for the class is worked out for each pod, from the few
terms that select it. What is remembered is dropped when the class is unschedulable or no longer asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pumice.claims.reasons import Cause, Unallocated
from pumice.model.cards import Allocation
from pumice.model.refusal import FitError
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.claim_search import Found, has_alternatives, later_alternatives
from pumice.scheduler.placing.evaluation import Among, Choice, Evaluation
from pumice.scheduler.placing.kept import ClassState, KeptClasses, first
from pumice.scheduler.placing.occupants import Occupants
from pumice.scheduler.placing.reasons import Why, why_not
from pumice.scheduler.plugins.contract import Part
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.scheduling_queue import Seen
from pumice.scheduler.state.state import State


@dataclass(slots=True)
class _Alternatives:
    """The nodes of a class with alternatives: those with the earliest ones come first, whatever their scores. A node of which
    nobody knows yet is taken for one that has the first ones, until it is searched."""

    kept: ClassState
    scores: NDArray[np.float64]
    """Minus infinity of a node that is out of the question."""
    level: int = 0

    def __post_init__(self) -> None:
        self.scores = self.scores.copy()

    def leader(self, rank: NDArray[np.int64]) -> int:
        """Return the row that comes next."""
        while True:
            shown = np.where(self.kept.later == self.level, self.scores, -np.inf)
            row = first(shown, rank)
            if shown.item(row) > -np.inf or not self.go_on():
                return row

    def go_on(self) -> bool:
        """Go on with what comes later; False where that is nothing."""
        later = self.kept.later[(self.scores > -np.inf) & (self.kept.later > self.level)]
        if len(later):
            self.level = int(later.min())
        return bool(len(later))

    def is_best(self, row: int, choice: Choice) -> bool:
        """Return whether none comes earlier. If one may, the row is set back."""
        self.kept.later[row] = later_alternatives(choice.claims or ())
        return self.kept.later.item(row) <= self.level


class Placer:
    """Chooses nodes under one framework, and remembers per class what the last look found."""

    def __init__(self, state: State, framework: Framework) -> None:
        self.state = state
        self.framework = framework
        self.evaluation = Evaluation(state, framework)
        self.occupants = Occupants(state)
        self._kept = KeptClasses(state, self.evaluation)
        self._reported: tuple[tuple[PodClass, int, int, int, int, int], Why] | None = None
        self._reported_among: tuple[object, Why] | None = None
        self._unschedulable, self._unresolvable = state.scheduling_queue.unschedulable, state.scheduling_queue.unresolvable
        self._looked_at: dict[PodClass, int] = {}
        """Searches by which classes with alternatives have looked for earlier ones since they were given a node."""
        self._no_future: dict[PodClass, int] = {}
        """Classes for which there was nothing on any row that is being released, and up to which change."""

    def drop_arrays(self) -> None:
        """Forget the arrays of all classes. They are worked out again when they are asked for."""
        self._kept.clear()
        self.evaluation.claims.drop()

    # -- choosing -----------------------------------------------------------------------------------------------

    def choose(
        self, cls: PodClass, only: str = "", accept: Callable[[Choice], bool] | None = None, among: Among | None = None
    ) -> Choice | None:
        """The best node whose idle resources take a pod of this class; ``only`` restricts it to one node, ``accept`` to
        choices of cards that somebody else agrees to (a queue that must pay for them), ``among`` to nodes that this one pod of
        the class may have."""
        if cls.refusals or cls.request.refused or cls in self.evaluation.claims.late or self.is_unschedulable(cls):
            return None
        if only:
            return self._on(cls, only, accept, among)
        kept = self._kept.current(cls.base)
        masked, scores = kept.masked, self._among_pods(cls, kept.masked)
        elsewhere = False
        """True if nodes that it may not have would take it: then the class is not unschedulable."""
        if among is not None:
            open_to_class = masked if scores is None else scores
            scores = among.narrow(open_to_class)
            elsewhere = bool(((open_to_class > -np.inf) & (scores == -np.inf)).any())
        rank = self.state.ledger.table.rank()
        declined = False
        alternatives = _Alternatives(kept, masked if scores is None else scores) if has_alternatives(cls) else None
        if alternatives is not None:
            scores = alternatives.scores
            if self._looked_at.get(cls, 0) > len(self.state.ledger.table):  # nodes change quicker than they are looked at
                alternatives.go_on()
        while True:
            if alternatives is not None:
                row = alternatives.leader(rank)
            else:
                row = kept.leader(rank) if scores is None else first(scores, rank)
            if (masked if scores is None else scores).item(row) == -np.inf:
                if declined or elsewhere:
                    return None  # it fits; nothing can help it but the one who declined
                self._unschedulable[cls] = self._seen(cls)
                self.state.scheduling_queue.unschedulable_now.append(cls)
                if scores is None:
                    self._kept.drop(cls.base)
                return None
            choice = self._chosen_on(cls, kept, row)
            if choice is None and cls in self.evaluation.claims.late:
                return None  # the search goes on in the next cycle
            if choice is None:
                masked[row] = -np.inf
                kept.changed([row])
                if scores is not None:
                    scores[masked == -np.inf] = -np.inf  # this one, or all where no node can mend it
                continue
            agreed = choice if accept is None else self._agreed(cls, choice, accept)
            if agreed is not None:
                if alternatives is None or alternatives.is_best(row, agreed):
                    self._looked_at.pop(cls, None)
                    return agreed
                self._looked_at[cls] = self._looked_at.get(cls, 0) + 1
                continue
            if scores is None:
                scores = masked.copy()
            scores[self._like(cls, row)] = -np.inf
            declined = True

    def _on(
        self, cls: PodClass, node: str, accept: Callable[[Choice], bool] | None, among: Among | None
    ) -> Choice | None:
        """The choice on that node, found without a look at any other one."""
        table = self.state.ledger.table
        row = table.row_of.get(node, -1)
        if row < 0 or (among is not None and not among.open(table.capacity)[row]):
            return None
        found = self.evaluation.few(self.evaluation.recipe(cls), [row])
        if not found:
            return None
        if cls.base is not cls:
            verdicts = self.framework.verdicts(self.state, cls, np.array([row], np.intp), Part.PODS)
            if any(verdict.failed.any() for verdict in verdicts):
                return None
        choice = self._with_claims(cls, found[0])
        return choice if choice is None or accept is None else self._agreed(cls, choice, accept)

    def as_wished(
        self, cls: PodClass, node: str, where: Any, accept: Callable[[Choice], bool] | None, among: Among | None
    ) -> Choice | None:
        """The choice that was planned for a pod of this class, where it stands in the ledger as it is."""
        row = self.state.ledger.table.row_of.get(node, -1)
        (device_request,) = cls.device_requests
        device_table = self.state.ledger.device_tables[device_request.device_type]
        if row < 0 or device_table.device_type.planner is None or not self.open_to(cls, among)[row]:
            return None
        fit = device_table.device_type.planner.fit(device_request, device_table.view(node), where)
        choice = None if fit is None else self._with_claims(cls, Choice(node, row, (fit.allocation,), fit.score))
        return choice if choice is None or accept is None or accept(choice) else None

    def open_to(self, cls: PodClass, among: Among | None) -> NDArray[np.bool_]:
        """Per row whether the node would take a pod of this class now, as far as can be said of all of them at once."""
        if cls.refusals or cls.request.refused or self.is_unschedulable(cls):
            return np.zeros(self.state.ledger.table.capacity, bool)
        masked = self._kept.current(cls.base).masked
        scores = self._among_pods(cls, masked)
        scores = masked if scores is None else scores
        return np.asarray((scores if among is None else among.narrow(scores)) > -np.inf)

    def _among_pods(self, cls: PodClass, masked: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """The scores with what pods that run elsewhere have to do with it, and with what depends on which nodes fit; None where
        those of the base are all."""
        refused = None if cls.base is cls else self.framework.refused_for_pods(self.state, cls)
        if refused is not None:
            masked = np.where(refused, -np.inf, masked)
        if self.state.has_preferences(cls):
            relative = self.framework.relative(self.state, cls, masked > -np.inf)
            if relative is not None:
                return masked + relative
        return None if refused is None else masked

    def _agreed(self, cls: PodClass, choice: Choice, accept: Callable[[Choice], bool]) -> Choice | None:
        """The choice, or where it is declined the next cards of the same node that are not: the dearest are left out one by one.
        Among alike cards there is nothing to look for."""
        if accept(choice):
            return choice
        for device_request in cls.quota_known_late:
            device_table = self.state.ledger.device_tables[device_request.device_type]
            view, late = device_table.view(choice.node), device_table.device_type.late_quota
            if late is None or len(late.card_kinds(view.inventory)) < 2:
                continue
            dear: dict[int, str] = {}
            allocation = next(
                allocation for allocation in choice.allocations if allocation.device_type == device_request.device_type
            )
            while len(dear) < len(view.inventory.cards):
                costliest = max(allocation.container_devices, key=lambda container_device: container_device.memory)
                dear[costliest.card] = "too dear for the queue"
                fit = device_table.device_type.fit(device_request, replace(view, quarantined={**view.quarantined, **dear}))
                if isinstance(fit, FitError):
                    break
                allocation = fit.allocation
                allocations = tuple(
                    allocation if mine.device_type == device_request.device_type else mine
                    for mine in choice.allocations
                )
                if accept(replace(choice, allocations=allocations)):
                    return replace(choice, allocations=allocations)
        return None

    def _like(self, cls: PodClass, row: int) -> NDArray[np.bool_]:
        """Rows on which a pod of this class would get cards of the same amounts as there, or devices of the same capacities."""
        size = self.state.ledger.table.capacity
        like = np.zeros(size, bool)
        like[row] = True
        if cls.device_claims:
            slices, table = self.state.device_claims.slices, self.state.ledger.table
            makes = slices.makes_of(table.name(row))
            for other in np.flatnonzero(table.live[:size]).tolist():
                like[other] = like[other] or slices.makes_of(table.name(other)) == makes
            return like
        books = [self.state.ledger.device_tables[device_request.device_type] for device_request in cls.device_requests]
        if all(
            device_table.by_counters(device_request)
            for device_table, device_request in zip(books, cls.device_requests, strict=True)
        ):
            like = np.ones(size, bool)
            for device_table in books:
                like &= device_table.states.ids[:size] == device_table.state_of(row)
        return like

    @property
    def news(self) -> int:
        """Grows whenever something happens that may help an unschedulable class."""
        return self.state.ledger.table.gains.end + sum(self.lasting)

    @property
    def lasting(self) -> tuple[int, int, int, int]:
        """Return how often pods came or went that others may wait for, on trial apart, and storage or claims changed."""
        terms = self.state.ledger.terms
        return terms.stays, self.state.volumes.version, terms.terminating, self.state.device_claims.news

    def _seen(self, cls: PodClass) -> Seen:
        state, terms = self.state, self.state.ledger.terms
        claims, classes = state.device_claims.seen_by(cls.device_claims), state.device_claims.classes_version
        return state.ledger.table.gains.end, terms.arrivals, state.volumes.version, terms.terminating, claims, classes

    def is_unschedulable(self, cls: PodClass) -> bool:
        """The queueing hint of a class. Return whether nothing that could help it has happened since it fitted nowhere: no row
        gained room for it, no pod came that it wants to be near or may now spread out against, nobody went who kept it away from
        other nodes, and nothing changed of the storage that it claims."""
        seen = self._unschedulable.get(cls)
        if seen is None:
            return False
        now, table = self._seen(cls), self.state.ledger.table
        if cls.device_claims and seen[5] != now[5]:  # at the least it lacks something else than the class that was not there
            return False
        came = cls.constraints.awaits_pods and seen[1] != now[1]
        storage = (bool(cls.constraints.claims) and seen[2] != now[2]) or seen[4] != now[4]
        left = cls.base is not cls and seen[3] != now[3]
        if seen[0] == now[0] and not (came or storage or left):
            return True
        if cls.base is cls and self.unresolvable(cls):
            return True
        changed = table.gains.since(seen[0])
        if cls.base is not cls:  # a pod that went or came may matter far from its node
            masked = self._kept.current(cls.base).masked
            refused = self.framework.refused_for_pods(self.state, cls)
            fits = masked > -np.inf if refused is None else (masked > -np.inf) & ~refused
        elif changed is None or storage or self._kept.shares_claims(cls):
            fits = self.evaluation.fits(cls, None)
        else:
            rows = np.array(changed, np.intp)
            fits = self.evaluation.fits(cls, rows[table.live[rows]])
        if not fits.any():
            self._unschedulable[cls] = now
            return True
        del self._unschedulable[cls]
        return False

    def was_unschedulable(self, cls: PodClass) -> bool:
        """Return whether it is unschedulable, and nothing has happened since that was found."""
        return self._unschedulable.get(cls) == self._seen(cls)

    def reconsider(self, classes: Iterable[PodClass]) -> None:
        """Forget that classes were unschedulable while a gang, now taken back, held the room."""
        for cls in classes:
            self._unschedulable.pop(cls, None)

    def forget(self) -> None:
        """Drop everything that is remembered (the configuration changed)."""
        self._kept.clear()
        self._unschedulable.clear()
        self._unresolvable.clear()
        self._no_future.clear()
        self._looked_at.clear()
        self._reported = self._reported_among = None

    def choose_future(
        self, cls: PodClass, only: str = "", among: Among | None = None, accept: Callable[[Choice], bool] | None = None
    ) -> Choice | None:
        """The best node, by the plugins' scores and then by name, that would take the pod once what terminates there is gone;
        ``only`` restricts it to one node, ``among`` to those that this one pod may have, ``accept`` as in ``choose``."""
        table = self.state.ledger.table
        if not table.releasing_rows or cls.refusals or cls.request.refused:
            return None
        alone = not only and among is None and not (cls.constraints.claims or cls.device_claims)
        alone = alone and not self.framework.constrains(self.state, cls, Part.PODS)  # nothing but the row itself decides
        rows = self._future_rows(only, since=self._no_future.get(cls, -1) if alone else -1)
        if among is not None:
            rows = rows[among.open(table.capacity)[rows]]
        rows = rows[self.evaluation.idle(cls, rows, future=True)]
        declined = False
        for choice in self._futures(cls, rows, among) if len(rows) else ():
            if accept is None or accept(choice):
                return choice
            declined = True
        if alone and not declined:
            if len(self._no_future) > 10_000:
                self._no_future.clear()
            self._no_future[cls] = table.changes.end
        return None

    def _future_rows(self, only: str, since: int) -> Rows:
        """Return where something is being released, by name; of these only what has changed ``since`` then."""
        table = self.state.ledger.table
        if only:
            row = table.row_of.get(only, -1)
            return np.array([row] if row in table.releasing_rows else [], np.intp)
        changed = table.changes.since(since) if since >= 0 else None
        found: Iterable[int] = table.releasing_rows if changed is None else filter(table.releasing_rows.__contains__, changed)
        rows = np.array(list(found), np.intp)
        return rows[np.argsort(table.rank()[rows])]

    def _futures(self, cls: PodClass, rows: Rows, among: Among | None) -> Iterator[Choice]:
        """Those of the rows that would take it, the best first. They have what is asked for once what terminates there is
        gone."""
        table = self.state.ledger.table
        if self.framework.constrains(self.state, cls):
            rows = rows[~self.refused_in_future(cls, rows)]
        scores = None if len(rows) == 1 else self.framework.scores(self.state, cls, rows)
        if among is not None and among.task_scores is not None:
            scores = among.task_scores[rows] + (0.0 if scores is None else scores)
        for place in range(len(rows)) if scores is None else np.argsort(-scores, kind="stable"):
            row = int(rows[place])
            allocations = self._future_allocations(cls, table.name(row))
            if allocations is None:
                continue
            claims = self._future_claims(cls, table.name(row), allocations) if cls.device_claims else ()
            if claims is not None:
                yield Choice(table.name(row), row, allocations, 0.0, claims or None)

    def _future_claims(self, cls: PodClass, node: str, shares: Sequence[Allocation]) -> Found | None:
        ledger = self.state.ledger
        answer = self.evaluation.claims.in_future(cls, node, ledger.leaving(node), ledger.nominated_claims(node), shares)
        return None if isinstance(answer, Unallocated) else answer

    def refused_in_future(self, cls: PodClass, rows: Rows) -> NDArray[np.bool_]:
        """Return which of the rows a filter refuses once what terminates there is gone, and whoever was nominated is there."""
        constraints, refused = cls.constraints, np.zeros(len(rows), bool)
        minded = constraints.ports or constraints.claims or self.framework.constrains(self.state, cls, Part.PODS)
        with self.state.ledger.as_nominated() if minded else nullcontext():
            for verdict in self.framework.verdicts(self.state, cls, rows):
                refused |= verdict.failed
        return refused

    def _future_allocations(self, cls: PodClass, node: str) -> tuple[Allocation, ...] | None:
        ledger = self.state.ledger
        allocations, leaving = [], ledger.leaving(node)
        for device_request in cls.device_requests:
            device_table = ledger.device_tables[device_request.device_type]
            if node not in device_table.nodes:
                return None
            fit = device_table.device_type.fit(device_request, ledger.future_cards(device_request.device_type, node, leaving))
            if isinstance(fit, FitError):
                return None
            allocations.append(fit.allocation)
        return tuple(allocations)

    def _chosen_on(self, cls: PodClass, kept: ClassState, row: int) -> Choice | None:
        """Choose the cards on that row; None when the exact look finds that they do not fit after all."""
        found = kept.chosen.get(row)
        if found is None:
            found = self._cards_on(cls, kept, row)
        if found is not None:
            found = self._with_claims(cls, found, kept)
        if found is not None:
            kept.chosen[row] = found
        return found

    def _with_claims(self, cls: PodClass, choice: Choice, kept: ClassState | None = None) -> Choice | None:
        """The choice with devices for the pod's claims; None where there are none, or no time to look for them. What no node can
        mend closes all of them."""
        if not cls.device_claims or choice.claims is not None:
            return choice
        answer = self.evaluation.claims.on(cls, choice.node, choice.allocations)
        if isinstance(answer, Unallocated) and answer.cause is not Cause.NODE and kept is not None:
            kept.masked[:] = -np.inf
            kept.leaders = None
        return None if answer is None or isinstance(answer, Unallocated) else replace(choice, claims=answer)

    def _cards_on(self, cls: PodClass, kept: ClassState, row: int) -> Choice | None:
        table = self.state.ledger.table
        allocations = []
        for device_request in cls.device_requests:
            fit = self.evaluation.exact(device_request, table.name(row))
            if isinstance(fit, FitError):
                return None
            allocations.append(fit.allocation)
        return Choice(table.name(row), row, tuple(allocations), float(kept.masked[row]))

    # -- why not ------------------------------------------------------------------------------------------------

    def why(self, cls: PodClass, *, per_node: bool = False, among: Among | None = None) -> Why:
        """The reasons of all nodes, from the same filters that decided. Remembers classes for which no hope is left."""
        if among is not None:
            return self._why_among(cls, among, per_node=per_node)
        if (
            self._reported is not None
            and self._reported[0] == self._moment(cls)
            and (self._reported[1].fit_errors or not per_node)
        ):
            return self._reported[1]
        why = why_not(self.state, self.framework, self.evaluation, cls, per_node=per_node)
        if not self.unresolvable(cls):  # while others have the room, by trial too, reasons that pass hide those that stay
            self._unresolvable.pop(cls, None)
        if why.final and why.nodes and not (cls.constraints.topological or cls.constraints.claims or cls.device_claims):
            self._unresolvable[cls] = self.state.ledger.table.version
            if len(self._unresolvable) > 100_000:
                self._unresolvable.pop(next(iter(self._unresolvable)))
        if cls not in self.evaluation.claims.late:  # else its devices are searched for again, and the answer is another one
            self.still_holds(cls, why)
        return why

    def _why_among(self, cls: PodClass, among: Among, *, per_node: bool) -> Why:
        """The reasons of the nodes that one pod may have, and of those that it may not. Equal pods are told at once."""
        table = self.state.ledger.table
        key = self._moment(cls), among.rows is None, among.open(table.capacity).tobytes(), per_node
        if self._reported_among is None or self._reported_among[0] != key:
            why = why_not(
                self.state, self.framework, self.evaluation, cls, per_node=per_node, rows=among.rows, bounds=among.verdicts
            )
            self._reported_among = None if cls in self.evaluation.claims.late else (key, why)
            return why
        return self._reported_among[1]

    def unresolvable(self, cls: PodClass) -> bool:
        """Return whether no node can hold such a pod, whatever leaves, as far as its reasons were worked out for these nodes."""
        if cls.refusals or cls.request.refused:
            return True
        return self._unresolvable.get(cls) == self.state.ledger.table.version

    def still_holds(self, cls: PodClass, why: Why) -> None:
        """The ledger is as it was when ``why`` was said: what an explanation tried since is taken back."""
        self._reported = self._moment(cls), why

    def _moment(self, cls: PodClass) -> tuple[PodClass, int, int, int, int, int]:
        state, table = self.state, self.state.ledger.table
        claims = state.device_claims.judged_by(cls.device_claims)
        return cls, table.changes.end, table.version, state.ledger.terms.version, state.volumes.version, claims
