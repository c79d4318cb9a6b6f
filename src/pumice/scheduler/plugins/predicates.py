"""predicates: the Kubernetes filters (Volcano pkg/scheduler/plugins/predicates), each for many nodes at once, with the texts
of the spec."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins import storage
from pumice.scheduler.plugins.contract import NodeOrder, Part, Predicate, Scorer, Verdict
from pumice.scheduler.plugins.storage import VolumeScores
from pumice.scheduler.plugins.taints import untolerated
from pumice.scheduler.plugins.topology import (
    affinity_unmet,
    against_anti_affinity,
    anti_affinity_broken,
    node_affinity_met,
    spread_broken,
)
from pumice.scheduler.state.classes import PodClass, Port
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments

Mask = NDArray[np.bool_]
VOLUME_PATIENCE = 600.0
"""Seconds for which a pod that has its place waits for its volumes, unless volumebinding.bindTimeoutSeconds says otherwise."""


class Predicates(Predicate, NodeOrder):
    name = "predicates"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.node_affinity = arguments.boolean("predicate.NodeAffinityEnable", True)
        self.ports = arguments.boolean("predicate.NodePortsEnable", True)
        self.taints = arguments.boolean("predicate.TaintTolerationEnable", True)
        self.pod_affinity = arguments.boolean("predicate.PodAffinityEnable", True)
        self.spread = arguments.boolean("predicate.PodTopologySpreadEnable", True)
        self.limits = arguments.boolean("predicate.NodeVolumeLimitsEnable", True)
        self.zones = arguments.boolean("predicate.VolumeZoneEnable", True)
        self.volumes = arguments.boolean("predicate.VolumeBindingEnable", True)
        self.volume_scores = VolumeScores(arguments)
        self.volume_patience = max(0.0, arguments.real("volumebinding.bindTimeoutSeconds", VOLUME_PATIENCE))

    def constrains(self, state: State, cls: PodClass, part: Part) -> bool:
        constraints = cls.constraints
        alone = (
            state.ledger.table.tainted
            or constraints.selector
            or constraints.required is not None
            or constraints.ports
            or constraints.claims
        )
        among = constraints.topological or state.ledger.terms.any_refusing
        return bool((alone and Part.NODE in part) or (among and Part.PODS in part))

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part) -> Iterator[Verdict]:
        constraints = cls.constraints
        table = state.ledger.table
        if Part.NODE not in part:
            yield from self._among_pods(state, cls, rows)
            return

        def take(mask: Mask) -> Mask:
            return mask[: table.capacity] if rows is None else mask[rows]

        claims = bool(constraints.claims)
        if claims and self.volumes and (text := storage.unusable_claims(state, cls)):
            yield Verdict(take(np.ones(table.capacity, bool)), text, final=True, abort=True)
            return
        cordoned, tainted = untolerated(state, cls, rows)
        if cordoned.any():
            yield Verdict(cordoned, "node(s) were unschedulable", final=True, abort=True)
        if self.node_affinity and (constraints.selector or constraints.required is not None):
            text = "node(s) didn't match Pod's node affinity/selector"
            yield Verdict(~take(node_affinity_met(state, constraints)), text, final=True, abort=True)
        if self.taints and tainted.any():
            yield Verdict(tainted, "node(s) had untolerated taint(s)", final=True, abort=True)
        if self.ports and constraints.ports:
            text = "node(s) didn't have free ports for the requested pod ports"
            yield Verdict(take(_ports_taken(state, constraints.ports, rows)), text)
        if self.pod_affinity and Part.PODS in part:
            yield from _pod_affinity(state, cls, take)
        if claims and self.volumes:
            yield from storage.in_use(state, cls, take)
        if claims and self.limits:
            yield from storage.too_many(state, cls, take)
        if claims and self.zones:
            yield from storage.wrong_zone(state, cls, take)
        if Part.PODS in part:
            yield from self._spread(state, cls, take)
        if claims and self.volumes:
            yield from storage.out_of_reach(state, cls, take)

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        found = self.volume_scores.scores(state, cls) if cls.constraints.claims else None
        return found if found is None or rows is None else found[rows]

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        return super().scorer(state, cls) if cls.constraints.claims and self.volume_scores.weight else None

    def _among_pods(self, state: State, cls: PodClass, rows: Rows | None) -> Iterator[Verdict]:
        def take(mask: Mask) -> Mask:
            return mask if rows is None else mask[rows]

        if self.pod_affinity:
            yield from _pod_affinity(state, cls, take)
        yield from self._spread(state, cls, take)

    def _spread(self, state: State, cls: PodClass, take: storage.Take) -> Iterator[Verdict]:
        if self.spread and any(rule.hard for rule in cls.constraints.spread):
            skewed, missing = spread_broken(state, cls)
            text = "node(s) didn't match pod topology spread constraints"
            yield Verdict(take(missing), f"{text} (missing required label)", final=True, abort=True)
            yield Verdict(take(skewed), text)


def _pod_affinity(state: State, cls: PodClass, take: storage.Take) -> Iterator[Verdict]:
    constraints = cls.constraints
    if constraints.affinity:
        text = "node(s) didn't match pod affinity rules"
        yield Verdict(take(affinity_unmet(state, constraints)), text, final=True, abort=True)
    if constraints.anti_affinity:
        broken = anti_affinity_broken(state, constraints)
        if broken is not None:
            yield Verdict(take(broken), "node(s) didn't match pod anti-affinity rules")
    if state.ledger.terms.any_refusing:
        refused = against_anti_affinity(state, constraints)
        if refused is not None:
            yield Verdict(take(refused), "node(s) didn't satisfy existing pods anti-affinity rules")


def _ports_taken(state: State, ports: tuple[Port, ...], rows: Rows | None) -> Mask:
    """For the whole table; looked at are those rows."""
    taken = np.zeros(state.ledger.table.capacity, bool)
    used = state.ledger.terms.ports
    for row in used if rows is None else [row for row in rows.tolist() if row in used]:
        taken[row] = any(_clash(mine, other) for mine in ports for other in used[row])
    return taken


def _clash(left: Port, right: Port) -> bool:
    """Same protocol and port on an address that both would use; 0.0.0.0 is every address."""
    return left[1:] == right[1:] and (left[0] == right[0] or "0.0.0.0" in (left[0], right[0]))
