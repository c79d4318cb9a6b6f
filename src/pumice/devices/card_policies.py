"""Card policies, a row each: in what order cards are taken on a node and what score a choice gives a node.

The functions are plain arithmetic, so that they serve numbers and arrays of cards alike. Whoever reads or checks a policy's name
reads this table: settings, asks, lint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from pumice.model.errors import nearest
from pumice.wire import names

TIE = 1e-4
"""Share of the score that orders nodes whose cards score alike: binpack goes on with the fuller node, spread with the
emptier one. Small enough never to change what upstream's rounding makes of a score."""


class Stranding(Struct, frozen=True):
    """The measure of what is stranded on a node (``fragmentation``). ``ahead``: the weight of what will be left over beside
    what no pod can use now; ``whole``: what whole free cards are worth that lie on one node, for pods of many cards."""

    ahead: float = 0.0
    whole: float = 0.0
    fitted: bool = False
    """True if each shape has weights of its own once enough pods were seen (``fitting``), in place of 1 and ``ahead``."""


class CardPolicy(Struct, frozen=True):
    """One policy. Without any, the highest index comes first and no node is better than another."""

    name: str
    rank: Callable[[Any, Any, Any, Any], Any]
    """(memory in use, shares, cores in use, total) of a card, the total of it at least 1: the greatest comes first, of equal ones
    the lowest index."""
    score: Callable[[Any, Any, Any], Any]
    """(memory in use with the pod, total, shares before it) of a chosen card, in 0..100; the node's score is their mean."""
    tie: Callable[[Any, Any, Any, Any], Any]
    """(memory in use, total, shares, share limit) of a whole node, in 0..1, before the pod."""
    stranding: Stranding | None = None
    """Between nodes, what a pod would strand of cards comes first, and ``score`` decides where that is alike."""


def _tightest(memory: Any, shares: Any, cores: Any, total: Any) -> Any:
    """The greater of the parts in use of memory and cores, in millionths."""
    of_memory, of_cores = memory * 1_000_000 // total, cores * 10_000
    return of_memory + (of_cores - of_memory) * (of_cores > of_memory)


def _used(charged: Any, total: Any, shares: Any) -> Any:
    return 100.0 * charged / total


def _fuller(memory: Any, total: Any, shares: Any, limit: Any) -> Any:
    return memory / total



POLICIES: Mapping[str, CardPolicy] = {
    policy.name: policy
    for policy in (
        CardPolicy("binpack", lambda memory, shares, cores, total: memory, _used, _fuller),
        CardPolicy(
            "spread",
            lambda memory, shares, cores, total: -shares,
            lambda charged, total, shares: 100.0 * (shares == 0),
            lambda memory, total, shares, limit: 1.0 - shares / limit,
        ),
        CardPolicy("fgd", _tightest, _used, _fuller, Stranding()),
        CardPolicy("lookahead", _tightest, _used, _fuller, Stranding(ahead=0.5, whole=0.1)),
        CardPolicy("fitted", _tightest, _used, _fuller, Stranding(ahead=0.5, whole=0.02, fitted=True)),
    )
}

ANNOTATIONS: Final = (names.NODE_POLICY, names.CARD_POLICY)
"""Of a pod, or of a Queue for those of its pods that say nothing: the policy between nodes, and on a node."""

FOR_SLOTS = "binpack"
"""By whose tie nodes stand that offer slots of equal cost to a pod without a policy of its own: the fuller one goes on."""


def policies_in(notes: Mapping[str, str]) -> dict[str, str]:
    """Return those of the annotations that name a policy."""
    return {key: notes[key] for key in ANNOTATIONS if notes.get(key) in POLICIES}


def misnamed_in(notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the annotations that name no policy, each with a sentence that tells the nearest one."""
    for key in ANNOTATIONS:
        if key in notes and notes[key] not in POLICIES:
            near = nearest(str(notes[key]), POLICIES)
            yield key, f"{key}: {notes[key]!r} is no card policy{near} (one of {', '.join(POLICIES)})"
