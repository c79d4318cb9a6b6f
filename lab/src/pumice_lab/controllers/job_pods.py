"""The pods of a Job: what they tell together with its status, which are made and which let go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Create, Requeue
from pumice.wire.kinds import PODS
from pumice.wire.times import seconds
from pumice_lab.controllers.common import (
    BURST,
    Action,
    Json,
    View,
    by_deletion_order,
    delete_pod,
    is_active,
    is_deleting,
    owner_reference,
    phase,
    pod_from,
)

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


BACKOFF = Backoff(10.0, 600.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a Job by its pods and its status together."""

    own: Sequence[View]
    active: Sequence[View]
    ending: Sequence[View]  # asked to end, and still at it
    failed_pods: Sequence[View]
    succeeded: int
    failed: int
    done: Indexes
    lost: Indexes  # given up (backoffLimitPerIndex)


def observe(job: View, own: Sequence[View]) -> Seen:
    spec, status = job["spec"], job.get("status") or {}
    failed_pods = [pod for pod in own if phase(pod) == "Failed"]
    failed = max(sum(counts(spec, pod) for pod in failed_pods), int(status.get("failed") or 0))
    done = lost = Indexes()
    if indexed(spec):
        wanted = completions_of(spec)
        lost = Indexes.parse(status.get("failedIndexes"), wanted)
        done = Indexes.parse(status.get("completedIndexes"), wanted) | Indexes.of(
            i for pod in own if phase(pod) == "Succeeded" and (i := index_of(pod, wanted)) is not None and i not in lost)
        if per_index(spec):
            lost |= Indexes.of(i for pod in failed_pods if _gives_up(spec, pod)
                               and (i := index_of(pod, wanted)) is not None and i not in done)
        succeeded = done.total
    else:
        succeeded = max(sum(phase(pod) == "Succeeded" for pod in own), int(status.get("succeeded") or 0))
    ending = [pod for pod in own if is_deleting(pod) and phase(pod) not in ("Succeeded", "Failed")]
    return Seen(own, [pod for pod in own if is_active(pod)], ending, failed_pods, succeeded, failed, done, lost)


def _gives_up(spec: View, pod: View) -> bool:
    """Return True if a failed pod is the last of its index."""
    rule = failure_rule(spec, pod)
    if rule and rule.action == "FailIndex":
        return True
    return (rule is None or rule.action != "Ignore") and failures(pod) >= int(spec["backoffLimitPerIndex"])


def manage(job: View, seen: Seen, now: float) -> list[Action]:
    """Pods made or let go."""
    spec = job["spec"]
    wanted = _wanted(spec, seen)
    if surplus := _surplus(spec, seen.active, len(seen.active) - wanted):
        return [delete_pod(pod) for pod in surplus[:BURST]]
    missing = min(BURST, wanted - len(seen.active) - (len(seen.ending) if replaces_failed_only(spec) else 0))
    if missing <= 0:
        return []
    if per_index(spec):
        return _create_by_index(job, seen, missing, now)
    if (pause := _back_off(seen, now)) > 0:
        return [Requeue(pause)]
    return _create(job, seen, missing)


def _wanted(spec: View, seen: Seen) -> int:
    """Return how many are to be active."""
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    if completions is None:
        return len(seen.active) if seen.succeeded else parallelism
    return max(0, min(parallelism, int(completions) - seen.succeeded))


def _surplus(spec: View, active: Sequence[View], count: int) -> list[View]:
    """At least ``count`` of the active; of an Indexed Job every one whose index another has or nobody needs."""
    if count <= 0 and not indexed(spec):
        return []
    kept = by_deletion_order(active)
    surplus: list[View] = []
    if indexed(spec):
        last: dict[int, View] = {}
        for pod in kept:
            index = index_of(pod, completions_of(spec))
            spare = pod if index is None else last.get(index)
            if spare is not None:
                surplus.append(spare)
            if index is not None:
                last[index] = pod
        kept = list(last.values())
    return [*surplus, *kept[:max(0, count - len(surplus))]]


def _create(job: View, seen: Seen, count: int) -> list[Action]:
    if not indexed(job["spec"]):
        return [Create(PODS, _pod(job)) for _ in range(count)]
    name = job["metadata"]["name"]
    return [Create(PODS, with_index(_pod(job), index, name)) for index in _free(job["spec"], seen, count)]


def _create_by_index(job: View, seen: Seen, count: int, now: float) -> list[Action]:
    """Each index waits for itself after its own failures."""
    spec = job["spec"]
    last: dict[int, View] = {}
    for pod in sorted(seen.failed_pods, key=lambda pod: (all_failures(pod), _finished_at(pod))):
        if (index := index_of(pod, completions_of(spec))) is not None:
            last[index] = pod
    actions: list[Action] = []
    pauses = []
    for index in _free(spec, seen, count):
        replaced = last.get(index)
        if replaced and (left := _finished_at(replaced) + BACKOFF.pause(all_failures(replaced)) - now) > 0:
            pauses.append(left)
            continue
        pod = with_index(_pod(job), index, job["metadata"]["name"])
        count_failures(pod, replaced, counted=replaced is not None and counts(spec, replaced))
        actions.append(Create(PODS, pod))
    return [*actions, *([Requeue(min(pauses))] if pauses else [])]


def _free(spec: View, seen: Seen, count: int) -> list[int]:
    """The first indexes that nobody works on or has settled."""
    completions = completions_of(spec)
    busy = [*seen.active, *(seen.ending if replaces_failed_only(spec) else ())]
    taken = seen.done | seen.lost | Indexes.of(i for pod in busy if (i := index_of(pod, completions)) is not None)
    return list(islice(taken.others(completions), count))


def _pod(job: View) -> Json:
    meta = job["metadata"]
    owner = owner_reference(job, "batch/v1", "Job")
    return pod_from(job["spec"]["template"], owner, meta["namespace"], f"{meta['name']}-")


def _back_off(seen: Seen, now: float) -> float:
    """Seconds until the next pod may be made after failures that no success followed."""
    success = max((_finished_at(pod) for pod in seen.own if phase(pod) == "Succeeded"), default=0.0)
    failed = [end for pod in seen.failed_pods if (end := _finished_at(pod)) > success]
    return max(0.0, max(failed) + BACKOFF.pause(len(failed) - 1) - now) if failed else 0.0


def _finished_at(pod: View) -> float:
    times = [seconds(((s.get("state") or {}).get("terminated") or {}).get("finishedAt"))
             for s in (pod.get("status") or {}).get("containerStatuses") or ()]
    return max([t for t in times if t] or [seconds(pod["metadata"].get("creationTimestamp"))])


def indexed(spec: View) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def completions_of(spec: View) -> int:
    return int(spec.get("completions") or 0)


def per_index(spec: View) -> bool:
    return indexed(spec) and spec.get("backoffLimitPerIndex") is not None


# -- podFailurePolicy (KEP-3329), podReplacementPolicy (KEP-3939) and successPolicy (KEP-3998) of a Job ---------------


@dataclass(frozen=True, slots=True)
class Match:
    """The first rule that a failed pod meets."""

    action: str
    message: str


def failure_rule(spec: View, pod: View) -> Match | None:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    for place, rule in enumerate(rules):
        why = _failed_container(rule["onExitCodes"], pod) if rule.get("onExitCodes") else _condition(rule, pod)
        if why:
            return Match(rule["action"], f"{why} matching {rule['action']} rule at index {place}")
    return None


def counts(spec: View, pod: View) -> bool:
    """Return True if a failed pod counts towards backoffLimit."""
    rule = failure_rule(spec, pod)
    return rule is None or rule.action != "Ignore"


def replaces_failed_only(spec: View) -> bool:
    """A pod that is ending is replaced when it has ended, not before."""
    return spec.get("podReplacementPolicy") == "Failed" or bool(spec.get("podFailurePolicy"))


def success_rule(spec: View, done: Indexes) -> str:
    """Return the rule of successPolicy that is met; empty while nothing is, and while no index has succeeded."""
    for place, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or () if done.runs else ()):
        count = rule.get("succeededCount")
        named = rule.get("succeededIndexes")
        if named is None:
            met = count is not None and done.total >= count
        else:
            wanted = Indexes.parse(named, int(spec["completions"]))
            have = done.shared(wanted)
            met = bool(wanted.runs) and (have == wanted.total or (count is not None and have >= count))
        if met:
            return f"Matched rules at index {place}"
    return ""


def _failed_container(wanted: View, pod: View) -> str:
    for status, code in _exits(pod):
        if wanted.get("containerName") in (None, status["name"]) and (
            (code in wanted["values"]) == (wanted["operator"] == "In")
        ):
            meta = pod["metadata"]
            return f"Container {status['name']} for pod {meta['namespace']}/{meta['name']} failed with exit code {code}"
    return ""


def _exits(pod: View) -> Iterator[tuple[View, int]]:
    """Containers that ended with another code than 0; those of initialization after the others."""
    status = pod.get("status") or {}
    for entry in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        ended = (entry.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            yield entry, ended["exitCode"]


def _condition(rule: View, pod: View) -> str:
    wanted = {(entry["type"], entry.get("status", "True")) for entry in rule.get("onPodConditions") or ()}
    for entry in (pod.get("status") or {}).get("conditions") or ():
        if (entry.get("type"), entry.get("status")) in wanted:
            return f"Pod {pod['metadata']['namespace']}/{pod['metadata']['name']} has condition {entry['type']}"
    return ""
