"""The condition of a PodGroup that names the nodes reserved for it: a condition of our own, which a restarted scheduler reads
again."""

from __future__ import annotations

from typing import Final

from pumice.wire.volcano import PodGroupCondition, seconds, stamp

RESERVED: Final = "Reserved"
"""The condition's type. Its last transition is when the nodes were taken, or given back."""
HELD: Final = "NodesHeld"
OVER: Final = "TimeOver"
_WORDS: Final = "Nothing of lower rank is placed on "


def held(nodes: frozenset[str], since: float) -> PodGroupCondition:
    return PodGroupCondition(RESERVED, "True", "", stamp(since), HELD, _WORDS + ", ".join(sorted(nodes)))


def given_back(reason: str, text: str, when: float) -> PodGroupCondition:
    return PodGroupCondition(RESERVED, "False", "", stamp(when), reason, text)


def nodes_of(condition: PodGroupCondition) -> frozenset[str]:
    """Those that are held; none where it says otherwise, or what nobody can read."""
    if condition.status != "True" or not condition.message.startswith(_WORDS):
        return frozenset()
    return frozenset(filter(None, condition.message.removeprefix(_WORDS).split(", ")))


def since(condition: PodGroupCondition) -> float:
    """The time of day of its last transition; 0 where it has none."""
    return seconds(condition.last_transition_time)
