"""Pod (anti-)affinity and topology spread over node labels. Rules: kubernetes.io docs "Assigning Pods to Nodes" and
"Pod Topology Spread Constraints"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.engine.plugins.taints import untolerated
from pumice.engine.state.classes import PodClass
from pumice.engine.state.constraints import Constraints, SpreadRule

if TYPE_CHECKING:
    from pumice.engine.state.state import State

Mask = NDArray[np.bool_]


def affinity_unmet(state: State, constraints: Constraints) -> Mask:
    """Rows where the pod's required affinity is not met: every term needs a matching pod in the row's domain, unless
    nothing matches anywhere and the pod matches its own terms (the first of a group that wants to be together)."""
    terms = state.ledger.terms
    capacity = state.ledger.table.capacity
    unmet = np.zeros(capacity, bool)
    missing_label = np.zeros(capacity, bool)
    nowhere = True
    for term in constraints.affinity:
        counts, codes = terms.per_domain(term)
        unmet |= counts[:capacity] == 0
        missing_label |= codes[:capacity] < 0
        nowhere &= not bool(counts.any())
    if nowhere:
        labels = dict(constraints.labels)
        if all(term.selects(constraints.namespace, labels, terms.namespaces) for term in constraints.affinity):
            return missing_label
    return unmet | missing_label


def anti_affinity_broken(state: State, constraints: Constraints) -> Mask:
    """Rows in whose domain a pod runs that this pod refuses to be near."""
    capacity = state.ledger.table.capacity
    broken = np.zeros(capacity, bool)
    for term in constraints.anti_affinity:
        counts, _ = state.ledger.terms.per_domain(term)
        broken |= counts[:capacity] > 0
    return broken


def unwelcome(state: State, constraints: Constraints) -> Mask | None:
    """Rows in whose domain a pod runs that refuses to be near this one; None when there is none at all."""
    labels = dict(constraints.labels)
    capacity = state.ledger.table.capacity
    found: Mask | None = None
    for term, rows in state.ledger.terms.anti.items():
        if term.selects(constraints.namespace, labels, state.ledger.terms.namespaces):
            near = state.ledger.terms.rows_in_domains(term.topology, rows)[:capacity] > 0
            found = near if found is None else found | near
    return found


def spread_broken(state: State, cls: PodClass) -> tuple[Mask, Mask]:
    """(skew too large, topology label missing) per row, over all DoNotSchedule rules."""
    capacity = state.ledger.table.capacity
    skewed, missing = np.zeros(capacity, bool), np.zeros(capacity, bool)
    hard = [rule for rule in cls.constraints.spread if rule.hard]
    for rule in hard:
        counts, codes = state.ledger.terms.per_domain(rule.term)
        counts, codes = counts[:capacity], codes[:capacity]
        missing |= codes < 0
        eligible = _eligible(state, cls, rule, hard)
        domains = np.unique(codes[eligible])
        if not len(domains):
            continue
        per_node = state.ledger.terms.counts(rule.term)[:capacity]
        sums = np.bincount(codes[eligible], weights=per_node[eligible], minlength=int(codes.max()) + 1)
        least = int(sums[domains].min()) if len(domains) >= rule.min_domains else 0
        own = int(rule.term.selects(cls.constraints.namespace, dict(cls.constraints.labels), state.ledger.terms.namespaces))
        here = np.where(codes >= 0, sums[np.maximum(codes, 0)], 0)
        skewed |= (codes >= 0) & (here + own - least > rule.max_skew)
    return skewed, missing


def _eligible(state: State, cls: PodClass, rule: SpreadRule, rules: list[SpreadRule]) -> Mask:
    """Rows whose pods count: they carry all topology labels and the pod's own node affinity accepts them."""
    capacity = state.ledger.table.capacity
    labels = state.ledger.terms.labels
    found: Mask = state.ledger.table.live.copy()
    for other in rules:
        found &= labels.codes(other.term.topology)[:capacity] >= 0
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


def preferred_pod_scores(state: State, cls: PodClass) -> NDArray[np.float64] | None:
    """Sum of the preferred pod terms per row: the pod's own, and those of placed pods that it matches."""
    terms, capacity = state.ledger.terms, state.ledger.table.capacity
    constraints = cls.constraints
    if not constraints.preferred_pods and not terms.preferred:
        return None
    score = np.zeros(capacity)
    for own in constraints.preferred_pods:
        counts, _ = terms.per_domain(own.term)
        score += own.weight * counts[:capacity]
    labels = dict(constraints.labels)
    for theirs, rows in terms.preferred.items():
        if theirs.term.selects(constraints.namespace, labels, terms.namespaces):
            score += theirs.weight * terms.rows_in_domains(theirs.term.topology, rows)[:capacity]
    return score


def soft_spread_scores(state: State, cls: PodClass, fits: Mask) -> NDArray[np.float64] | None:
    """Score 0..100 of the ScheduleAnyway rules: fewer matching pods in the domain is better. Pods on nodes that the pod's own
    affinity (or, if the rule says so, its tolerations) leaves out do not count."""
    soft = [rule for rule in cls.constraints.spread if not rule.hard]
    if not soft or not fits.any():
        return None
    capacity = len(fits)
    raw = np.zeros(capacity)
    codes_of = {rule.term.topology: state.ledger.terms.labels.codes(rule.term.topology)[:capacity] for rule in soft}
    ignored = np.logical_or.reduce([codes < 0 for codes in codes_of.values()])
    for rule in soft:
        codes, eligible = codes_of[rule.term.topology], _eligible(state, cls, rule, soft)
        per_node = state.ledger.terms.counts(rule.term)[:capacity]
        sums = np.bincount(codes[eligible], weights=per_node[eligible], minlength=int(codes.max(initial=0)) + 1)
        domains = len(np.unique(codes[fits & ~ignored]))
        raw += sums[np.maximum(codes, 0)] * np.log(domains + 2) + (rule.max_skew - 1)
    raw = np.floor(raw + 0.5)
    usable = fits & ~ignored
    if not usable.any():
        return np.zeros(capacity)
    low, high = raw[usable].min(), raw[usable].max()
    score = np.full(capacity, 100.0) if high == 0 else np.floor(100 * (high + low - raw) / high)
    return np.where(ignored, 0.0, score)
