"""Claims of queues on each other, and the pods of a queue that are safe from them (Volcano pkg/scheduler/plugins/proportion,
Volcano pkg/scheduler/plugins/capacity; ADR 54).

Between two queues every queue from each of them up to below their common parent has a say. Who claims, and those above, must stay
within what they deserve in everything that the new pod asks for; who loses, and those above, must hold more than they deserve of
something that it asks for. So no pod that was let in by a claim can be claimed away before its queue borrows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pumice.scheduler.plugins.contract import Spared, Standing
from pumice.scheduler.state.jobs import QueueState, Task
from pumice.scheduler.state.resources import PODS, Vector, amount_text, dimension_order, of_claims, subtract

StandingOf = Callable[[QueueState], Standing]
Path = Sequence[QueueState]
"""A queue and those above it that have a say, the lowest first."""


def admitted(path: Path, amounts: Vector, standing: StandingOf) -> bool:
    """Return whether the lowest queue may claim so much of some other queue at all: with siblings it is alone, so it is asked
    alone."""
    amounts = _heeded(path, amounts, standing)
    return not _over(path[0], standing(path[0]), amounts) and any(standing(each).deserved for each in path)


def spared(claimant: Task, victims: Sequence[Task], path: Callable[[QueueState], Path], standing: StandingOf) -> Spared:
    """Return the victims that stay, and why. The sums are counted down along the victims that go."""
    assert claimant.job is not None
    mine = path(claimant.job.queue)
    wanted = _heeded(mine, claimant.amounts, standing)
    gone: dict[QueueState, Vector] = {}
    stay: dict[str, str] = {}
    for task in victims:
        if task.job is None:
            continue
        theirs = path(task.job.queue)
        claims, loses = [each for each in mine if each not in theirs], [each for each in theirs if each not in mine]
        text = _no_claim(claims, wanted, standing)
        for each in () if text else loses:
            found = standing(each)
            left = dict(found.taken)
            subtract(left, gone.get(each, {}).items())
            text = _safe(each, found._replace(taken=left), wanted, task.amounts)
            if text:
                break
        if text:
            stay[task.uid] = text
            continue
        for each in theirs:
            subtract(gone.setdefault(each, {}), [(name, -value) for name, value in task.amounts.items()])
    return stay


def _heeded(path: Path, amounts: Vector, standing: StandingOf) -> Vector:
    """Return what counts of a pod's request: of devices by claim those classes alone of which some queue here deserves any. Else
    who names none, as before there were such quotas, could claim back nothing else either."""
    deserved = {name for each in path for name in standing(each).deserved if of_claims(name)}
    return {name: value for name, value in amounts.items() if name in deserved or not of_claims(name)}


def _no_claim(path: Path, amounts: Vector, standing: StandingOf) -> str:
    if not path:
        return "it is of the same queue"
    if not any(standing(each).deserved for each in path):
        return f"queue {path[0].name} deserves nothing, so it may only borrow"
    return next((text for each in path if (text := _over(each, standing(each), amounts))), "")


def _over(queue: QueueState, found: Standing, amounts: Vector) -> str:
    """By what so much more would bring the queue over what it deserves or may have. One that names nothing that it deserves
    claims by what those above it deserve."""
    share = entitled(found.deserved, amounts) if found.deserved else {}
    for limits, what in ((share, "deserves"), (found.most, "may have")):
        for name in sorted(limits.keys() & amounts.keys(), key=dimension_order):
            used, more = found.taken.get(name, 0), amounts[name]
            if more and used + more > limits[name]:
                wanted, has, most = (amount_text(name, value) for value in (more, used, limits[name]))
                return f"queue {queue.name} would claim more than it {what}: {name} {wanted} with {has} of {most} in use"
    return ""


def _safe(queue: QueueState, found: Standing, wanted: Vector, amounts: Vector) -> str:
    """Why the queue need not give so much up for the sake of what is wanted."""
    share = entitled(found.deserved, amounts)
    requested = [name for name, value in amounts.items() if value and wanted.get(name) and name != PODS]
    if not requested:
        return "it holds nothing of what is asked for"
    for name in requested:
        least = found.guarantee.get(name, 0)
        if least and found.taken.get(name, 0) - amounts[name] < least:
            return f"queue {queue.name} would fall under what it is guaranteed: {name} {amount_text(name, least)}"
    if any(found.taken.get(name, 0) > share[name] for name in requested if name in share):
        return ""
    bounded = [name for name in requested if name in share]
    if not bounded:
        return f"queue {queue.name} deserves what the pod holds, and names no share of {', '.join(requested)}"
    return f"queue {queue.name} has no more than it deserves: {_numbers(found, bounded)}"


def entitled(deserved: Vector, amounts: Vector) -> Vector:
    """Return the part of a pod's request that its queue deserves. What is missing in it is no matter: who deserves four cards
    is not held to none of their memory, or of the processors beside them, because it does not name them; but who names none of
    all that the pod takes deserves none of it, and who names no device deserves no device."""
    taken = [name for name, value in amounts.items() if value and name != PODS]
    named = [name for name in taken if name in deserved]
    devices = any("/" in name for name in named)
    return {
        name: deserved.get(name, 0) for name in taken
        if name in deserved or not named or ("/" in name and not devices)
    }  # fmt: skip


def _numbers(found: Standing, names: Iterable[str]) -> str:
    return ", ".join(
        f"{name} {amount_text(name, found.taken.get(name, 0))} of {amount_text(name, found.deserved.get(name, 0))}"
        for name in sorted(names, key=dimension_order)
    )
