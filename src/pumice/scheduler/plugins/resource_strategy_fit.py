"""resource-strategy-fit: pack or spread by resource, spare nodes with scarce resources, and keep cpu and memory back for them
(docs/reference/topology.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import NodeOrder, Part, Predicate, Session, TaskNodeOrder, Verdict
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import CPU, MEMORY, PODS
from pumice.scheduler.state.state import State
from pumice.wire.names import RESOURCE_STRATEGY_TYPE, RESOURCE_STRATEGY_WEIGHT
from pumice.wire.scheduler_conf import Arguments

Floats = NDArray[np.float64]
Strategy = tuple[bool, int]
"""True if full nodes are preferred, and the weight."""
LEAST, MOST = "LeastAllocated", "MostAllocated"
GIGABYTE = 10**9


class ResourceStrategyFit(NodeOrder, Predicate, TaskNodeOrder):
    name = "resource-strategy-fit"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        weight = arguments.integer("resourceStrategyFitWeight", 10)
        self.weight = weight if weight >= 0 else 10
        self.strategies = self._strategies()
        self.scarce_weight, self.scarce = self._scarce()
        self.kept_back = self._kept_back()
        self._used: NDArray[np.int64] | None = None
        """Of what cpu and memory are kept back for, what was in use when the last cycle began."""

    # -- arguments ------------------------------------------------------------------------------------------------

    def _strategies(self) -> dict[str, Strategy]:
        found: dict[str, Strategy] = {}
        for name, values in self._part(self.arguments.get("resources"), "resources").items():
            if "*" in name and (name == "*" or name.index("*") != len(name) - 1):
                self._complain(f"resources: {name!r} is no name and no prefix that ends in one *; it is left out")
                continue
            given = self._part(values, f"resources.{name}")
            kind = given.text("type", LEAST)
            if kind not in (LEAST, MOST):
                self._complain(f"resources.{name}.type is {kind!r}, not {LEAST} or {MOST}; {LEAST} is used")
            found[name] = kind == MOST, max(1, given.integer("weight", 1))
        return found or {CPU: (False, 1), MEMORY: (False, 1)}

    def _scarce(self) -> tuple[int, dict[str, int]]:
        given = self._part(self.arguments.get("sra"), "sra")
        if not given.boolean("enable", False):
            return 0, {}
        weights = self._part(given.get("resourceWeight"), "sra.resourceWeight")
        return given.integer("weight", 1), {name: _natural(weights.integer(name, 1)) for name in _names(given)}

    def _kept_back(self) -> dict[str, tuple[float, float]]:
        given = self._part(self.arguments.get("proportional"), "proportional")
        if not given.boolean("enable", False):
            return {}
        rates = self._part(given.get("resourceProportion"), "proportional.resourceProportion")
        return {
            name: (_natural(rates.real(f"{name}.cpu", 1)), _natural(rates.real(f"{name}.memory", 1))) for name in _names(given)
        }  # fmt: skip

    def _part(self, values: Any, path: str) -> Arguments:
        if values is not None and not isinstance(values, Mapping):
            self._complain(f"{path} is {values!r}, not key: value; it is left out")
        part = Arguments(_mapping(values), f"plugin {self.name}: {path}")
        part.complaints = self.arguments.complaints
        return part

    def _complain(self, text: str) -> None:
        self.arguments.complaints.append(f"plugin {self.name}: {text}")

    # -- cpu and memory are kept back -----------------------------------------------------------------------------

    def open(self, session: Session) -> None:
        """Where a pod took what cpu and memory were kept back for, others may have those now although the node is fuller."""
        if not self.kept_back:
            return
        table = session.state.ledger.table
        used = table.used[:, [table.dim(name) for name in self.kept_back]].copy()
        before, self._used = self._used, used
        if before is not None and len(before) <= len(used):
            for row in np.flatnonzero((used[: len(before)] > before).any(axis=1)).tolist():
                table.touch(row, gain=True)

    def constrains(self, state: State, cls: PodClass, part: Part) -> bool:
        return Part.NODE in part and bool(self.kept_back) and not any(name in self.kept_back for name, _ in cls.request.items)

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part) -> Iterator[Verdict]:
        table, requested = state.ledger.table, dict(cls.request.items)
        idle = table.alloc - table.used if rows is None else table.alloc[rows] - table.used[rows]
        for name, (cpu, memory) in self.kept_back.items():
            devices = np.maximum(idle[:, table.dim(name)], 0) / 1000
            short = idle[:, table.dim(CPU)] - requested.get(CPU, 0) < devices * cpu * 1000
            short |= idle[:, table.dim(MEMORY)] - requested.get(MEMORY, 0) < devices * memory * GIGABYTE
            if (failed := short & (devices > 0)).any():
                yield Verdict(failed, f"proportional of resource {name} check failed")

    # -- scores ---------------------------------------------------------------------------------------------------

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> Floats | None:
        score = self._by_strategy(state, cls, rows, {name: self._strategy(name) for name, _ in cls.request.items})
        if self.scarce_weight > 0 and self.scarce:
            spared = self._spared(state, cls, rows)
            score = spared if score is None else score + spared
        return score

    def _strategy(self, name: str) -> Strategy | None:
        exact = self.strategies.get(name)
        if exact is not None:
            return exact
        prefixes = [key for key in self.strategies if key.endswith("*") and name.startswith(key[:-1])]
        return self.strategies[max(prefixes, key=len)] if prefixes else None

    def _by_strategy(
        self, state: State, cls: PodClass, rows: Rows | None, strategies: Mapping[str, Strategy | None]
    ) -> Floats | None:
        table = state.ledger.table
        alloc, used = (table.alloc, table.used) if rows is None else (table.alloc[rows], table.used[rows])
        score, over, total = np.zeros(len(alloc)), np.zeros(len(alloc), bool), 0
        for name, amount in cls.request.items:
            strategy = strategies.get(name)
            if name == PODS or strategy is None:
                continue
            packs, weight = strategy
            total += weight
            have, want = alloc[:, table.dim(name)], used[:, table.dim(name)] + amount
            over |= (want > have) & (have > 0)
            score += weight * np.where(have > 0, (want if packs else have - want) / np.maximum(have, 1), 0)
        return np.where(over, 0.0, score / total * 100 * self.weight) if total and self.weight else None

    def _spared(self, state: State, cls: PodClass, rows: Rows | None) -> Floats:
        """The more a node has of what is scarce, the less it is liked; one that lacks what the pod asks for is not judged."""
        table = state.ledger.table
        alloc = table.alloc if rows is None else table.alloc[rows]
        present = sum(weight * (alloc[:, table.dim(name)] > 0) for name, weight in self.scarce.items())
        score = (1 - np.asarray(present, np.float64) / max(1, sum(self.scarce.values()))) * 100 * self.scarce_weight
        lacks = np.zeros(len(alloc), bool)
        for name, _ in cls.request.items:
            lacks |= alloc[:, table.dim(name)] <= 0
        return np.where(lacks, 0.0, score)

    def task_scores(self, state: State, task: Task) -> Floats | None:
        """Return the node scores by a pod's own strategy, in place of the configuration's."""
        own = _own_strategies(task)
        if own is None:
            return None
        usual = self._by_strategy(state, task.cls, None, {name: self._strategy(name) for name, _ in task.cls.request.items})
        mine = self._by_strategy(state, task.cls, None, own)
        zero = np.zeros(state.ledger.table.capacity)
        return (zero if mine is None else mine) - (zero if usual is None else usual)


def _own_strategies(task: Task) -> dict[str, Strategy] | None:
    """By the pod's annotations; None where it has none that can be read."""
    annotations = {} if task.pod is None else task.pod.metadata.annotations
    kind = annotations.get(RESOURCE_STRATEGY_TYPE)
    if kind not in (LEAST, MOST):
        return None
    try:
        weights = json.loads(annotations.get(RESOURCE_STRATEGY_WEIGHT, ""))
    except ValueError:
        return None
    if not isinstance(weights, dict) or not all(type(weight) is int and weight >= 0 for weight in weights.values()):
        return None
    return {name: (kind == MOST, weight) for name, weight in weights.items()}


def _names(given: Arguments) -> Iterable[str]:
    return filter(None, (name.strip() for name in given.text("resources").split(",")))


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}


def _natural(number: Any) -> Any:
    return number if number >= 0 else 1
