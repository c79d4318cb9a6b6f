"""Pod (anti-)affinity and topology spread over node labels. Rules: kubernetes.io docs "Assigning Pods to Nodes" and
"Pod Topology Spread Constraints"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.taints import untolerated
from pumice.scheduler.state.classes import Constraints, PodClass, SpreadRule
from pumice.scheduler.state.state import State
from pumice.scheduler.state.terms import DomainCounts
from pumice.wire.kubernetes import HOSTNAME

Mask = NDArray[np.bool_]


def affinity_unmet(state: State, constraints: Constraints) -> Mask:
    """Rows where the pod's required affinity is not met: for every term a pod that meets all of them must run in the row's
    domain, unless there is none anywhere and the pod meets its own terms (the first of a group that wants to be together)."""
    terms = state.ledger.terms
    capacity = state.ledger.table.capacity
    unmet = np.zeros(capacity, bool)
    missing_label = np.zeros(capacity, bool)
    nowhere = True
    for term in constraints.affinity:
        counts = terms.counts(constraints.affinity, term.topology)
        nowhere &= not counts.placed
        unmet |= _near(state, counts, term.topology) == 0
        missing_label |= _codes(state, term.topology) < 0
    if nowhere:
        labels = dict(constraints.labels)
        if all(term.selects(constraints.namespace, labels, terms.namespaces) for term in constraints.affinity):
            return missing_label
    return unmet | missing_label


def anti_affinity_broken(state: State, constraints: Constraints) -> Mask | None:
    """Rows in whose domain a pod runs that this pod refuses to be near; None when there is none at all."""
    found: Mask | None = None
    for term in constraints.anti_affinity:
        counts = state.ledger.terms.counts((term,), term.topology)
        if counts.placed:
            near = _near(state, counts, term.topology) > 0
            found = near if found is None else found | near
    return found


def against_anti_affinity(state: State, constraints: Constraints) -> Mask | None:
    """Rows in whose domain a pod runs that refuses to be near this one; None when there is none at all."""
    found: Mask | None = None
    for term, counts in state.ledger.terms.refusing(constraints.namespace, constraints.labels):
        if counts.placed:
            near = _near(state, counts, term.topology) > 0
            found = near if found is None else found | near
    return found


def _near(state: State, counts: DomainCounts, topology: str) -> NDArray[np.int64]:
    """Per row the pods in its domain."""
    return counts.at(_codes(state, topology), state.ledger.terms.labels.domains(topology))


def _codes(state: State, topology: str) -> NDArray[np.int32]:
    return state.ledger.terms.labels.codes(topology)[: state.ledger.table.capacity]


def spread_broken(state: State, cls: PodClass) -> tuple[Mask, Mask]:
    """(skew too large, topology label missing) per row, over all DoNotSchedule rules."""
    capacity = state.ledger.table.capacity
    terms, constraints = state.ledger.terms, cls.constraints
    skewed, missing = np.zeros(capacity, bool), np.zeros(capacity, bool)
    hard = [rule for rule in constraints.spread if rule.hard]
    for rule in hard:
        codes = _codes(state, rule.term.topology)
        missing |= codes < 0
        sums, domains = _spread(state, cls, rule, hard)
        if not domains.any():
            continue
        least = int(sums[domains].min()) if int(domains.sum()) >= rule.min_domains else 0
        own = int(rule.term.selects(constraints.namespace, dict(constraints.labels), terms.namespaces))
        skewed |= (codes >= 0) & (sums[codes] + own - least > rule.max_skew)
    return skewed, missing


def _spread(state: State, cls: PodClass, rule: SpreadRule, rules: list[SpreadRule]) -> tuple[NDArray[np.int64], Mask]:
    """Per domain the pods that a rule counts, and whether it has a node that counts at all; last the nodes without the label.
    Pods that are being deleted are left out, as kube-scheduler does."""
    codes, eligible = _codes(state, rule.term.topology), _eligible(state, cls, rule, rules)
    size = state.ledger.terms.labels.domains(rule.term.topology) + 1
    here = np.where(codes < 0, size - 1, codes)[eligible]
    rows = state.ledger.terms.counts((rule.term,), "", staying=True).table(len(codes))[: len(codes)]
    sums = np.bincount(here, weights=rows[eligible], minlength=size).astype(np.int64)
    return sums, np.bincount(here, minlength=size) > 0


def _eligible(state: State, cls: PodClass, rule: SpreadRule, rules: list[SpreadRule]) -> Mask:
    """Rows whose pods count: they carry all topology labels and the pod's own node affinity accepts them."""
    found: Mask = state.ledger.table.live.copy()
    for other in rules:
        if not other.everywhere:
            found &= _codes(state, other.term.topology) >= 0
    if rule.node_affinity:
        found &= node_affinity_met(state, cls.constraints)
    if rule.node_taints:
        cordoned, tainted = untolerated(state, cls, None)
        found &= ~(cordoned | tainted)
    return found


def node_affinity_met(state: State, constraints: Constraints) -> Mask:
    labels = state.ledger.terms.labels
    capacity = state.ledger.table.capacity
    met = labels.match_all(constraints.selector)[:capacity]
    if constraints.required is not None:
        met = met & labels.match_any(constraints.required)[:capacity]
    return met


def preferred_pod_scores(state: State, cls: PodClass, hard: int) -> NDArray[np.float64] | None:
    """Sum of the preferred pod terms per row: the pod's own, and those of placed pods that it matches, whose required terms of
    affinity count ``hard`` each; None without any."""
    terms, constraints = state.ledger.terms, cls.constraints
    hints = [(own, terms.counts((own.term,), own.term.topology)) for own in constraints.preferred_pods]
    hints += terms.wishing(constraints.namespace, constraints.labels)
    score: NDArray[np.float64] | None = None
    for hint, counts in hints:
        weight = hint.weight * hard if hint.hard else hint.weight
        if counts.placed and weight:
            part = weight * _near(state, counts, hint.term.topology).astype(np.float64)
            score = part if score is None else score + part
    return score


def soft_spread_scores(state: State, cls: PodClass, fits: Mask) -> NDArray[np.float64] | None:
    """Score 0..100 of the ScheduleAnyway rules: fewer matching pods in the domain is better. Pods on nodes that the pod's own
    affinity (or, if the rule says so, its tolerations) leaves out do not count."""
    soft = [rule for rule in cls.constraints.spread if not rule.hard]
    if not soft or not fits.any():
        return None
    capacity = len(fits)
    raw = np.zeros(capacity)
    ignored = np.zeros(capacity, bool)
    for rule in soft:
        ignored |= (_codes(state, rule.term.topology) < 0) & (not rule.everywhere)
    usable = fits & ~ignored
    for rule in soft:
        codes = _codes(state, rule.term.topology)
        if rule.term.topology == HOSTNAME:  # each node is a domain
            found = state.ledger.terms.counts((rule.term,), "", staying=True).table(capacity)[:capacity]
            worth = found * np.log(np.count_nonzero(usable) + 2) + (rule.max_skew - 1)
            raw += worth * (codes >= 0)
            continue
        sums, _ = _spread(state, cls, rule, soft)
        domains = np.count_nonzero(np.bincount(codes[usable] + 1, minlength=1))  # those without the label are one, as there
        worth = sums * np.log(domains + 2) + (rule.max_skew - 1)
        worth[-1] = 0
        raw += worth[codes]
    if not usable.any():
        return np.zeros(capacity)
    raw = np.floor(raw + 0.5)
    low, high = raw[usable].min(), raw[usable].max()
    score = np.full(capacity, 100.0) if high == 0 else np.floor(100 * (high + low - raw) / high)
    return np.where(ignored, 0.0, score)
