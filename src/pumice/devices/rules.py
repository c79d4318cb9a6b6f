"""GPU exclusivity rules: which of them a pod matches (spec deviceshare-nvidia 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pumice.devices.settings import Rule

_NONE: frozenset[int] = frozenset()
"""One for all: empty sets of immutable kind are not shared by Python itself."""


def matching_rules(rules: Sequence[Rule], labels: Mapping[str, str]) -> frozenset[int]:
    """The numbers of the rules whose labels the pod carries, all with equal values."""
    if not rules or not labels:
        return _NONE
    return frozenset(
        number for number, rule in enumerate(rules) if all(labels.get(label) == value for label, value in rule)
    )
