"""What ConfigMaps of others say of nodes, put together per node.

Nobody's word on one node reaches another: an entry that cannot be read, or that contradicts itself, leaves what was said before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.wire.device_reports import DOUBT, Reported

_NOTHING: Mapping[str, str] = {}


@dataclass(slots=True)
class Reports:
    """``problems`` is told what is wrong, by ConfigMap."""

    problems: dict[str, str]
    _said: dict[str, Reported] = field(default_factory=dict)
    """By ConfigMap (namespace/name)."""
    _of: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node, what its reports say."""
    _sources: dict[str, set[str]] = field(default_factory=dict)
    """By node, the ConfigMaps that speak of it."""

    def of(self, node: str) -> dict[str, str]:
        return dict(self._of.get(node, _NOTHING))

    def put(self, where: str, found: Reported | None) -> set[str]:
        """Take over what a ConfigMap says now (None: it is gone); the nodes of which something else is known than before."""
        before = self._said.pop(where, None) or Reported()
        after = None if found is None else _keeping(found, before)
        if after is not None and (after.said or after.doubts):
            self._said[where] = after
        touched = {node for node in (*before.said, *before.doubts) if node}
        touched |= {node for node in (*(after.said if after else ()), *(after.doubts if after else ())) if node}
        changed = set()
        for node in touched:
            sources = self._sources.setdefault(node, set())
            if after is not None and (node in after.said or node in after.doubts):
                sources.add(where)
            else:
                sources.discard(where)
            if self._merge(node):
                changed.add(node)
        self._note(where, after)
        return changed

    def forget(self) -> set[str]:
        """Nobody is listened to any more; the nodes of which something was known."""
        known = set(self._of)
        for where in list(self._said):
            self.put(where, None)
        return known

    def _merge(self, node: str) -> bool:
        sources = sorted(self._sources.get(node, ()))
        merged: dict[str, str] = {}
        for where in sources:  # the first by name counts where two say the same sort of thing
            said = self._said.get(where, Reported())
            if node in said.said:
                merged.setdefault(said.about, said.said[node])
            if node in said.doubts:
                merged.setdefault(DOUBT, f"ConfigMap {where}: {said.doubts[node]}")
        if not sources:
            self._sources.pop(node, None)
        if merged == self._of.get(node, _NOTHING):
            return False
        self._of[node] = merged
        if not merged:
            del self._of[node]
        return True

    def _note(self, where: str, after: Reported | None) -> None:
        doubts = [f"{node}: {text}" if node else text for node, text in (after.doubts.items() if after else ())]
        if doubts:
            more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
            self.problems[f"ConfigMap {where}"] = f"{doubts[0]}; what was said before counts{more}"
        else:
            self.problems.pop(f"ConfigMap {where}", None)


def _keeping(found: Reported, before: Reported) -> Reported:
    """What counts now: of nodes in doubt what was said before."""
    if "" in found.doubts:
        return Reported(found.about or before.about, before.said, found.doubts)
    kept = {node: before.said[node] for node in found.doubts if node in before.said}
    return Reported(found.about, {**kept, **found.said}, found.doubts)
