"""HyperNodes by the labels of nodes: which there should be, and what is to be done about those that there are.

All or nothing: where labels contradict each other nobody can tell which one is wrong, and half a tree would send jobs astray.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pumice.effects.vocabulary import Create, Delete, Patch
from pumice.wire.controller_conf import LABEL, PROFILE, SOURCE, Profile
from pumice.wire.topology import HYPER_NODE, NODE, TOPOLOGY_API
from pumice.wire.volcano import HYPER_NODES

Json = dict[str, Any]
LONGEST_NAME: Final = 200
_NO_NAME: Final = re.compile(r"[^-a-z0-9.]+")


@dataclass(frozen=True, slots=True)
class Domain:
    """One switch: nodes of a profile with the same value of a level's label. Tier 1 is the lowest."""

    profile: Profile
    tier: int
    value: str

    @property
    def label(self) -> str:
        return self.profile.levels[-self.tier].label

    @property
    def name(self) -> str:
        """The readable part of the name, with a hash where that is not all of it."""
        plain = f"{self.profile.name}-tier{self.tier}-{self.value}"
        name = _NO_NAME.sub("-", plain.lower()).strip("-.")[:LONGEST_NAME]
        return name if name == plain else f"{name}-{sha256(plain.encode()).hexdigest()[:8]}"


def discover(profiles: Sequence[Profile], nodes: Mapping[str, Mapping[str, str]]) -> dict[str, Json]:
    """The HyperNodes by name. ``nodes`` holds labels by name. Raises ValueError where the labels make no tree."""
    members: dict[Domain, set[tuple[str, str]]] = defaultdict(set)
    parents: dict[Domain, Domain] = {}
    for node, labels in sorted(nodes.items()):
        for profile in _profiles_of(node, labels, profiles):
            below: Domain | None = None
            for domain in _domains_of(node, labels, profile):
                members[domain].add((NODE, node) if below is None else (HYPER_NODE, below.name))
                if below is not None and parents.setdefault(below, domain) != domain:
                    other = f"{domain.label}={parents[below].value}"
                    raise ValueError(f"{below.label}={below.value} lies in {other} and, by node {node}, in {domain.value}")
                below = domain
    return {domain.name: _body(domain, sorted(found)) for domain, found in members.items()}


def _profiles_of(node: str, labels: Mapping[str, str], profiles: Sequence[Profile]) -> list[Profile]:
    chosen = [profile for profile in profiles if profile.selector is not None and profile.selector.items() <= labels.items()]
    if len(chosen) > 1:
        raise ValueError(f"node {node} is of several profiles: {', '.join(profile.name for profile in chosen)}")
    return chosen or [profile for profile in profiles if profile.selector is None and labels.get(profile.levels[-1].label)]


def _domains_of(node: str, labels: Mapping[str, str], profile: Profile) -> Iterator[Domain]:
    """From the lowest up. Where nodes are told by a label, a missing level leaves the tree open above; else it is a mistake."""
    for tier, level in enumerate(reversed(profile.levels), 1):
        value = labels.get(level.label)
        if value:
            yield Domain(profile, tier, value)
        elif profile.selector is not None:
            raise ValueError(f"node {node} of profile {profile.name} has no label {level.label}")
        else:
            return


def _body(domain: Domain, members: Sequence[tuple[str, str]]) -> Json:
    marks = {SOURCE: LABEL, domain.label: domain.value}
    if domain.profile.selector is not None:
        marks[PROFILE] = domain.profile.name
    return {
        "apiVersion": TOPOLOGY_API, "kind": HYPER_NODE, "metadata": {"name": domain.name, "labels": marks},
        "spec": {"tier": domain.tier, "tierName": domain.profile.levels[-domain.tier].tier_name,
                 "members": [{"type": kind, "selector": {"exactMatch": {"name": name}}} for kind, name in members]},
    }  # fmt: skip


def changes(wanted: Mapping[str, Json], there: Mapping[str, Json]) -> Iterator[Create | Patch | Delete]:
    """``there`` are those that were discovered before. Lower tiers come first, so that nobody names what is not there."""
    for name, body in sorted(wanted.items(), key=lambda each: (each[1]["spec"]["tier"], each[0])):
        found, labels = there.get(name), body["metadata"]["labels"]
        if found is None:
            yield Create(HYPER_NODES, body)
        elif found.get("spec") != body["spec"] or not labels.items() <= (found["metadata"].get("labels") or {}).items():
            changed = {"metadata": {"labels": labels}, "spec": body["spec"]}
            yield Patch(HYPER_NODES, "", name, changed, found["metadata"]["uid"])
    for name in sorted(there.keys() - wanted.keys()):
        yield Delete(HYPER_NODES, "", name, there[name]["metadata"]["uid"])
