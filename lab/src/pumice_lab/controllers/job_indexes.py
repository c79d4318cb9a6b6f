"""Completion indexes of an Indexed Job: sets of them as runs, and what a pod says of its own index.

The annotations and what they count: KEP-3850, "Backoff Limit Per Index For Indexed Jobs".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pumice_lab.controllers.actions import Json, View

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


@dataclass(frozen=True, slots=True)
class Indexes:
    """Runs of (first, last), ascending and apart; small however many indexes a Job or a rule names."""

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Indexes:
        return cls(_joined((index, index) for index in indexes))

    @classmethod
    def parse(cls, text: str | None, completions: int) -> Indexes:
        """``1,3-5``; what is no number is passed over, and what reaches beyond the completions cut off."""
        runs = []
        for part in (text or "").split(","):
            first, dash, last = part.partition("-")
            if first.isdecimal() and (last.isdecimal() or not dash):
                runs.append((int(first), min(int(last or first), completions - 1)))
        return cls(_joined((first, last) for first, last in runs if first <= last))

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes(_joined((*self.runs, *other.runs)))

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self.runs, index, key=lambda run: run[0]) - 1
        return place >= 0 and index <= self.runs[place][1]

    def __str__(self) -> str:
        """As in status.completedIndexes."""
        return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in self.runs)

    @property
    def total(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def shared(self, other: Indexes) -> int:
        return self.total + other.total - (self | other).total

    def others(self, completions: int) -> Iterator[int]:
        """The indexes below ``completions`` that are not here, ascending."""
        start = 0
        for first, last in self.runs:
            yield from range(start, min(first, completions))
            start = last + 1
        yield from range(start, completions)


def _joined(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def index_of(pod: View, completions: int) -> int | None:
    """None also of an index that the Job does not have (any more)."""
    index = _number(pod, INDEX, -1)
    return index if 0 <= index < completions else None


def failures(pod: View) -> int:
    """Of the pods of its index before it, those that counted."""
    return _number(pod, FAILURES, 0)


def all_failures(pod: View) -> int:
    return failures(pod) + _number(pod, IGNORED_FAILURES, 0)


def count_failures(pod: Json, replaced: View | None, *, counted: bool) -> None:
    """Writes into a new pod what it inherits of the one it replaces."""
    annotations = pod["metadata"]["annotations"]
    annotations[FAILURES] = str(failures(replaced) + counted if replaced else 0)
    ignored = _number(replaced, IGNORED_FAILURES, 0) + (not counted) if replaced else 0
    if ignored:
        annotations[IGNORED_FAILURES] = str(ignored)


def with_index(pod: Json, index: int, job: str) -> Json:
    pod["metadata"]["annotations"][INDEX] = pod["metadata"]["labels"][INDEX] = str(index)
    pod["metadata"]["generateName"] = f"{job}-{index}-"
    pod["spec"].setdefault("hostname", f"{job}-{index}")
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    return pod


def _number(pod: View, annotation: str, default: int) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdecimal() and len(text) <= 10 else default
