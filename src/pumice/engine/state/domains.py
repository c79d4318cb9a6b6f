"""The tree of a cluster's network, grown from HyperNodes: which nodes lie behind one switch (docs/reference/topology.md).

Tiers fall from parent to member, a domain has one parent, and a node one domain of each branch. A HyperNode that says otherwise
loses the one member that does, the younger of two the member that both name; what was refused is told, the rest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.engine.state.nodes import Rows
from pumice.engine.state.selectors import LabelTable, parse_label_selector
from pumice.wire.topology import HYPER_NODE, NODE, HyperNode, Member
from pumice.wire.volcano import seconds

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
class Claim:
    """What became of one HyperNode's words."""

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
    """``domains`` by name, ``root`` above them all. ``tier_names``: the lowest tier of each name. ``levels``: lowest first."""

    root: Domain
    domains: Mapping[str, Domain]
    claims: Mapping[str, Claim]
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
    claims = {claim.name: claim for claim in sorted(map(Claim, hyper_nodes), key=lambda claim: claim.seniority)}
    for claim in claims.values():
        _read(claim, claims, row_of, labels)
    _settle(claims, {row: name for name, row in row_of.items()})
    top = max((claim.tier for claim in claims.values()), default=0) + 1
    root = Domain("", top, _rows(row_of.values()), frozenset(row_of.values()))
    domains: dict[str, Domain] = {}
    for claim in sorted(claims.values(), key=lambda claim: claim.tier):  # children before their parents
        rows = claim.nodes.union(*(domains[child].members for child in claim.children))
        domains[claim.name] = Domain(claim.name, claim.tier, _rows(rows), frozenset(rows), root)
        for child in claim.children:
            domains[child].parent = domains[claim.name]
    return Tree(root, domains, claims, _tier_names(claims.values()), _levels(domains.values(), capacity))


def _levels(domains: Iterable[Domain], capacity: int) -> list[Level]:
    found: dict[int, Level] = {}
    for domain in sorted(domains, key=lambda domain: (domain.tier, domain.name)):
        level = found.setdefault(domain.tier, Level(domain.tier, [], np.full(capacity, -1, np.intp)))
        level.codes[domain.rows] = len(level.domains)
        level.domains.append(domain)
    return list(found.values())


def _rows(rows: Iterable[int]) -> Rows:
    return np.array(sorted(rows), np.intp)


# -- members ------------------------------------------------------------------------------------------------------------


def _read(claim: Claim, claims: Mapping[str, Claim], row_of: Mapping[str, int], labels: LabelTable) -> None:
    """Its members, each by itself."""
    for member in claim.hyper_node.spec.members:
        if member.type == HYPER_NODE:
            _adopt(claim, member, claims)
        elif member.type == NODE:
            _take_nodes(claim, member, row_of, labels)
        else:
            claim.refused.append(f"a member of type {member.type!r} is neither {NODE} nor {HYPER_NODE}")
    if not claim.nodes and not claim.children:
        claim.remarks.append("it has no node")


def _adopt(claim: Claim, member: Member, claims: Mapping[str, Claim]) -> None:
    exact = member.selector.exact_match
    if exact is None:
        claim.refused.append(f"a member of type {HYPER_NODE} is named by exactMatch alone")
        return
    child = claims.get(exact.name)
    if child is None:
        claim.remarks.append(f"HyperNode {exact.name} does not exist")
    elif child.tier >= claim.tier:
        claim.refused.append(f"HyperNode {child.name} is of tier {child.tier}, which is not below {claim.tier}")
    elif child.parent == claim.name:
        claim.remarks.append(f"HyperNode {child.name} is named twice")
    elif child.parent:
        claim.refused.append(f"HyperNode {child.name} is a member of {child.parent} already")
    else:
        child.parent = claim.name
        claim.children.append(child.name)


def _take_nodes(claim: Claim, member: Member, row_of: Mapping[str, int], labels: LabelTable) -> None:
    selector = member.selector
    if selector.exact_match is not None:
        row = row_of.get(selector.exact_match.name)
        if row is None:
            claim.remarks.append(f"node {selector.exact_match.name} does not exist")
            return
        found, words = {row}, f"node {selector.exact_match.name}"
    elif selector.regex_match is not None:
        words = f"regexMatch {selector.regex_match.pattern!r}"
        try:
            pattern = _compiled(selector.regex_match.pattern)
        except ValueError as error:
            claim.refused.append(f"{words}: {error}")
            return
        found = {row for name, row in row_of.items() if pattern.search(name)}
    elif selector.label_match is not None:
        words = "labelMatch"
        chosen = labels.match_all(parse_label_selector(selector.label_match.written))
        found = {row for row in row_of.values() if chosen[row]}
    else:
        claim.refused.append(f"a member of type {NODE} has no selector")
        return
    if not found:
        claim.remarks.append(f"{words} selects no node")
    elif found <= claim.nodes:
        claim.remarks.append(f"{words} is named twice")
    claim.nodes |= found


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


# -- where two claim one node ---------------------------------------------------------------------------------------------


def _settle(claims: Mapping[str, Claim], names: Mapping[int, str]) -> None:
    """A node that HyperNodes of different branches claim is the oldest one's."""
    claimed: dict[int, list[Claim]] = {}
    for claim in claims.values():
        for row in claim.nodes:
            claimed.setdefault(row, []).append(claim)
    lost: dict[tuple[str, str], list[str]] = {}
    for row, rivals in claimed.items():
        if len(rivals) == 1:
            continue
        lines = {claim.name: _line(claim, claims) for claim in rivals}
        deepest = [claim for claim in rivals if not any(claim.name in lines[other.name][1:] for other in rivals)]
        keeper = lines[deepest[0].name]
        for claim in rivals:
            if claim.name not in keeper:
                claim.nodes.discard(row)
                lost.setdefault((claim.name, keeper[0]), []).append(names[row])
    for (loser, keeper_name), nodes in lost.items():
        few = ", ".join(sorted(nodes)[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        claims[loser].refused.append(f"overlap: {few} belong to {keeper_name} already")


def _line(claim: Claim, claims: Mapping[str, Claim]) -> list[str]:
    """The HyperNode and those above it."""
    found = [claim.name]
    while claim.parent:
        claim = claims[claim.parent]
        found.append(claim.name)
    return found


def _tier_names(claims: Iterable[Claim]) -> dict[str, int]:
    """Where one name stands for several tiers, the lowest is meant, which promises the most."""
    found: dict[str, int] = {}
    for claim in claims:
        name = claim.hyper_node.spec.tier_name
        if name:
            if found.get(name, claim.tier) != claim.tier:
                claim.remarks.append(f"tierName {name} stands for tier {found[name]}, too; the lowest counts")
            found[name] = min(found.get(name, claim.tier), claim.tier)
    return found
