"""The tree of a cluster's network, grown from HyperNodes: which nodes lie behind one switch (docs/reference/topology.md).

Tiers fall from parent to member, a domain has one parent, and a node one domain of each branch. A HyperNode that says otherwise
loses the one member that does, the younger of two the member that both name; what was refused is told, the rest counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.ledger import Ledger
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.selectors import LabelTable
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, READY_STATUSES, Status
from pumice.wire.objects import match_all, parse_label_selector
from pumice.wire.times import seconds
from pumice.wire.topology import (
    HYPER_NODE,
    NODE,
    Condition,
    HyperNode,
    HyperNodeStatus,
    Member,
    NetworkTopology,
    SubGroupPolicy,
    annotated,
)

UNBOUNDED_REPEATS = 3
"""More than so many in one pattern, or one inside the other, may take a regular expression longer than anybody waits."""


@dataclass(slots=True, eq=False)
class Domain:
    """Nodes behind one switch, with all that hangs below it; without a name, the whole cluster."""

    name: str
    tier: int
    rows: Rows
    members: frozenset[int]
    parent: Domain | None = None

    @property
    def above(self) -> Iterator[Domain]:
        """The domain itself and those that it lies in, up to the whole cluster."""
        at: Domain | None = self
        while at is not None:
            yield at
            at = at.parent

    def lies_in(self, other: Domain) -> bool:
        return any(domain is other for domain in self.above)


@dataclass(slots=True)
class HyperNodeView:
    """One HyperNode as it was read: the nodes and HyperNodes below it, and members that do not count."""

    hyper_node: HyperNode
    nodes: set[int] = field(default_factory=set)
    children: list[str] = field(default_factory=list)
    parent: str = ""
    refused: list[str] = field(default_factory=list)
    """Members that do not count, and why."""
    remarks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.hyper_node.metadata.name

    @property
    def tier(self) -> int:
        return self.hyper_node.spec.tier

    @property
    def seniority(self) -> tuple[float, str]:
        return seconds(self.hyper_node.metadata.creation_timestamp), self.name


@dataclass(slots=True)
class Level:
    """The domains of one tier, which have no node in common. ``codes``: per row the place of its domain among them, or -1."""

    tier: int
    domains: list[Domain]
    codes: NDArray[np.intp]


@dataclass(slots=True)
class Tree:
    """The tree of network domains. ``domains`` by name, ``root`` above them all. ``tier_names``: the lowest tier of each name.
    ``levels``: lowest first."""

    root: Domain
    domains: Mapping[str, Domain]
    views: Mapping[str, HyperNodeView]
    tier_names: Mapping[str, int]
    levels: list[Level]

    def all(self) -> Iterator[Domain]:
        """The lowest tiers first, the whole cluster last."""
        for level in self.levels:
            yield from level.domains
        yield self.root

    def smallest(self, rows: list[int]) -> Domain:
        """The lowest domain that holds all of these rows."""
        for level in self.levels:
            codes = level.codes[rows]
            if codes[0] >= 0 and (codes == codes[0]).all():
                return level.domains[int(codes[0])]
        return self.root


def grow(hyper_nodes: Iterable[HyperNode], row_of: Mapping[str, int], labels: LabelTable, capacity: int) -> Tree:
    """``capacity``: how many rows there may be."""
    views = {view.name: view for view in sorted(map(HyperNodeView, hyper_nodes), key=lambda view: view.seniority)}
    for view in views.values():
        _read(view, views, row_of, labels)
    _resolve(views, {row: name for name, row in row_of.items()})
    top = max((view.tier for view in views.values()), default=0) + 1
    root = Domain("", top, _rows(row_of.values()), frozenset(row_of.values()))
    domains: dict[str, Domain] = {}
    for view in sorted(views.values(), key=lambda view: view.tier):  # children before their parents
        rows = view.nodes.union(*(domains[child].members for child in view.children))
        domains[view.name] = Domain(view.name, view.tier, _rows(rows), frozenset(rows), root)
        for child in view.children:
            domains[child].parent = domains[view.name]
    return Tree(root, domains, views, _tier_names(views.values()), _levels(domains.values(), capacity))


def _levels(domains: Iterable[Domain], capacity: int) -> list[Level]:
    found: dict[int, Level] = {}
    for domain in sorted(domains, key=lambda domain: (domain.tier, domain.name)):
        level = found.setdefault(domain.tier, Level(domain.tier, [], np.full(capacity, -1, np.intp)))
        level.codes[domain.rows] = len(level.domains)
        level.domains.append(domain)
    return list(found.values())


def _rows(rows: Iterable[int]) -> Rows:
    return np.array(sorted(rows), np.intp)


# -- members -----------------------------------------------------------------------------------------------------------


def _read(view: HyperNodeView, views: Mapping[str, HyperNodeView], row_of: Mapping[str, int], labels: LabelTable) -> None:
    """Its members, each by itself."""
    for member in view.hyper_node.spec.members:
        if member.type == HYPER_NODE:
            _adopt(view, member, views)
        elif member.type == NODE:
            _take_nodes(view, member, row_of, labels)
        else:
            view.refused.append(f"a member of type {member.type!r} is neither {NODE} nor {HYPER_NODE}")
    if not view.nodes and not view.children:
        view.remarks.append("it has no node")


def _adopt(view: HyperNodeView, member: Member, views: Mapping[str, HyperNodeView]) -> None:
    exact = member.selector.exact_match
    if exact is None:
        view.refused.append(f"a member of type {HYPER_NODE} is named by exactMatch alone")
        return
    child = views.get(exact.name)
    if child is None:
        view.remarks.append(f"HyperNode {exact.name} does not exist")
    elif child.tier >= view.tier:
        view.refused.append(f"HyperNode {child.name} is of tier {child.tier}, which is not below {view.tier}")
    elif child.parent == view.name:
        view.remarks.append(f"HyperNode {child.name} is named twice")
    elif child.parent:
        view.refused.append(f"HyperNode {child.name} is a member of {child.parent} already")
    else:
        child.parent = view.name
        view.children.append(child.name)


def _take_nodes(view: HyperNodeView, member: Member, row_of: Mapping[str, int], labels: LabelTable) -> None:
    selector = member.selector
    if selector.exact_match is not None:
        row = row_of.get(selector.exact_match.name)
        if row is None:
            view.remarks.append(f"node {selector.exact_match.name} does not exist")
            return
        found, words = {row}, f"node {selector.exact_match.name}"
    elif selector.regex_match is not None:
        words = f"regexMatch {selector.regex_match.pattern!r}"
        try:
            pattern = _compiled(selector.regex_match.pattern)
        except ValueError as error:
            view.refused.append(f"{words}: {error}")
            return
        found = {row for name, row in row_of.items() if pattern.search(name)}
    elif selector.label_match is not None:
        words = "labelMatch"
        chosen = labels.match_all(parse_label_selector(selector.label_match.written))
        found = {row for row in row_of.values() if chosen[row]}
    else:
        view.refused.append(f"a member of type {NODE} has no selector")
        return
    if not found:
        view.remarks.append(f"{words} selects no node")
    elif found <= view.nodes:
        view.remarks.append(f"{words} is named twice")
    view.nodes |= found


def _compiled(pattern: str) -> re.Pattern[str]:
    """Raises ValueError where it is none, or one that could search for ever."""
    if not pattern:
        raise ValueError("it is empty")
    try:
        compiled = re.compile(pattern)
        parser: Any = import_module("re._parser")
        repeats = list(_repeats(parser.parse(pattern), inside=False))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if any(repeats) or len(repeats) > UNBOUNDED_REPEATS:
        raise ValueError("what it repeats could take too long to be found")
    return compiled


def _repeats(parsed: Any, *, inside: bool) -> Iterator[bool]:
    """Per unbounded repetition whether it stands inside another one."""
    for operator, argument in parsed:
        name = str(operator)
        if name.endswith("_REPEAT"):
            _, most, body = argument
            many = most > 16
            if many:
                yield inside
            yield from _repeats(body, inside=inside or many)
        elif name == "BRANCH":
            if inside:
                yield True
            for branch in argument[1]:
                yield from _repeats(branch, inside=inside)
        elif name == "SUBPATTERN":
            yield from _repeats(argument[-1], inside=inside)
        elif name in ("ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS"):
            yield True


# -- where two HyperNodes claim one node -------------------------------------------------------------------------------


def _resolve(views: Mapping[str, HyperNodeView], names: Mapping[int, str]) -> None:
    """A node that HyperNodes of different branches claim is the oldest one's."""
    claimed: dict[int, list[HyperNodeView]] = {}
    for view in views.values():
        for row in view.nodes:
            claimed.setdefault(row, []).append(view)
    lost: dict[tuple[str, str], list[str]] = {}
    for row, rivals in claimed.items():
        if len(rivals) == 1:
            continue
        lines = {view.name: _line(view, views) for view in rivals}
        deepest = [view for view in rivals if not any(view.name in lines[other.name][1:] for other in rivals)]
        keeper = lines[deepest[0].name]
        for view in rivals:
            if view.name not in keeper:
                view.nodes.discard(row)
                lost.setdefault((view.name, keeper[0]), []).append(names[row])
    for (loser, keeper_name), nodes in lost.items():
        few = ", ".join(sorted(nodes)[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        views[loser].refused.append(f"overlap: {few} belong to {keeper_name} already")


def _line(view: HyperNodeView, views: Mapping[str, HyperNodeView]) -> list[str]:
    """The HyperNode and those above it."""
    found = [view.name]
    while view.parent:
        view = views[view.parent]
        found.append(view.name)
    return found


def _tier_names(views: Iterable[HyperNodeView]) -> dict[str, int]:
    """Tiers by name; of several tiers of one name the lowest, which promises the most."""
    found: dict[str, int] = {}
    for view in views:
        name = view.hyper_node.spec.tier_name
        if name:
            if found.get(name, view.tier) != view.tier:
                view.remarks.append(f"tierName {name} stands for tier {found[name]}, too; the lowest counts")
            found[name] = min(found.get(name, view.tier), view.tier)
    return found


# -- HyperNodes as the watch shows them --------------------------------------------------------------------------------


ACCEPTED = "Accepted"
MOST_WORDS = 1024


@dataclass(slots=True)
class HyperNodes:
    scheduling_queue: SchedulingQueue
    ledger: Ledger
    problems: dict[str, str]
    known: dict[str, HyperNode] = field(default_factory=dict)
    unreported: bool = False
    """Something changed since the objects' statuses were last compared with the tree."""
    _tree: Tree | None = None

    def put(self, hyper_node: HyperNode) -> None:
        name = hyper_node.metadata.name
        before = self.known.get(name)
        self.known[name] = hyper_node
        self.unreported = True
        if before is None or before.spec != hyper_node.spec or before.metadata.uid != hyper_node.metadata.uid:
            self._changed()

    def drop(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            self.problems.pop(f"HyperNode {name}", None)
            self._changed()

    def nodes_changed(self) -> None:
        """A node came or went, or has other labels."""
        self._tree = None
        self.unreported = self.unreported or bool(self.known)

    def _changed(self) -> None:
        self.nodes_changed()
        self.scheduling_queue.released()  # who waits for room behind one switch is looked at anew

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            terms, table = self.ledger.terms, self.ledger.table
            self._tree = grow(self.known.values(), table.row_of, terms.labels, table.capacity)
        return self._tree

    def news(self, now: str) -> Iterator[HyperNode]:
        """HyperNodes whose status does not say what became of them, with one that does: how many nodes they have, and whether
        all of their members count. What is told is taken for written."""
        if not self.unreported:
            return
        self.unreported = False
        for name, view in self.tree.views.items():
            known, number, condition = self.known[name], len(self.tree.domains[name].members), _condition(view)
            mine = next((mine for mine in known.status.conditions if mine.type == ACCEPTED), None)
            if view.refused:
                self.problems[f"HyperNode {name}"] = "; ".join(view.refused)
            else:
                self.problems.pop(f"HyperNode {name}", None)
            if known.status.node_count == number and mine is not None and mine.same(condition):
                continue
            if mine is None or mine.status != condition.status:
                condition.last_transition_time = now
            else:
                condition.last_transition_time = mine.last_transition_time or now
            others = [other for other in known.status.conditions if other is not mine]
            known.status = HyperNodeStatus(number, [*others, condition])
            yield known


def _condition(view: HyperNodeView) -> Condition:
    text = "; ".join([*view.refused, *view.remarks])[:MOST_WORDS]
    if view.refused:
        return Condition(ACCEPTED, "False", "MembersRefused", text)
    return Condition(ACCEPTED, "True", "MembersMissing" if view.remarks else ACCEPTED, text)


# -- what a job asks of the network, as a whole and for its sub-groups (docs/reference/topology.md) --------------------


HELD: Final = frozenset({*ALLOCATED_STATUSES, Status.PIPELINED})
NOMINATED: Final = frozenset({*READY_STATUSES, Status.PIPELINED})
VALID: Final = frozenset({*NOMINATED, Status.PENDING})


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A sub-group's key: the policy's place among the PodGroup's, and what the labels say."""

    policy: int
    values: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, tuple[str, ...]]:
        first = self.values[0] if self.values else ""
        return (int(first) if first.isdecimal() else 0, self.policy, self.values)


def topology_of(job: Job) -> NetworkTopology | None:
    """By the PodGroup, by its annotations, or by those of the pod that comes first."""
    if job.group is not None:
        requested = job.group.spec.network_topology or annotated(job.group.metadata.annotations)
        if requested is not None:
            return requested
    first = next(iter(job.pending.values()), None)
    return annotated(first.pod.metadata.annotations) if first is not None and first.pod is not None else None


def bound_together(job: Job) -> bool:
    """Return whether where one of its pods goes decides where others may."""
    return topology_of(job) is not None or bool(policies_of(job))


def policies_of(job: Job) -> list[SubGroupPolicy]:
    return job.group.spec.sub_group_policy if job.group is not None else []


def group_of(policies: list[SubGroupPolicy], task: Task) -> GroupKey | None:
    """The sub-group of a pod, by the first policy that takes it; None where none does."""
    labels = dict(task.features.labels) if task.features is not None else {}
    for place, policy in enumerate(policies):
        chosen = policy.label_selector
        values = tuple(labels.get(key, "") for key in policy.match_label_keys)
        if all(values) and (chosen is None or match_all(parse_label_selector(chosen.written), labels)):
            return GroupKey(place, values)
    return None


def enough_groups(job: Job, statuses: frozenset[Status], without: Collection[Task] = ()) -> bool:
    """Return whether as many sub-groups as each policy wants have all of their pods in one of these statuses, ``without``
    some."""
    policies = policies_of(job)
    if not any(policy.min_sub_groups for policy in policies):
        return True
    members: dict[GroupKey, int] = {}
    for task in job.tasks.values():
        if task.status in statuses and task not in without and (key := group_of(policies, task)) is not None:
            members[key] = members.get(key, 0) + 1
    whole = [0] * len(policies)
    for key, number in members.items():
        whole[key.policy] += number >= policies[key.policy].sub_group_size
    return all(found >= policy.min_sub_groups for found, policy in zip(whole, policies, strict=True))


def highest_tier(requested: NetworkTopology, tree: Tree) -> int | str:
    """The highest tier that is allowed, or why there is none. A wish, and a demand that names no tier, end at the whole
    cluster."""
    if requested.problem:
        return requested.problem
    if not requested.hard:
        return tree.root.tier
    if requested.highest_tier_name:
        found = tree.tier_names.get(requested.highest_tier_name)
        return f"no HyperNode has the tierName {requested.highest_tier_name!r}" if found is None else found
    return tree.root.tier if requested.highest_tier_allowed is None else requested.highest_tier_allowed
