"""Answers that only a cycle can give: why pods wait, how queues stand. Worked out in a child that is forked off this process,
which runs the cycle on its copy of the state; the parent's state is never disturbed.

It is what ``pumice explain`` says, from the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import as_json, explain, explain_known
from pumice.scheduler.explaining.queues import QueueView, views_as_they_are
from pumice.scheduler.explaining.workloads import GroupView, WaitingPods, as_they_wait, group_view
from pumice.wire.objects import Pod


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of everything after one cycle at ``at`` (Unix seconds)."""

    at: float = 0.0
    queues: tuple[QueueView, ...] = ()
    waiting: tuple[WaitingPods, ...] = ()
    groups: tuple[GroupView, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    """Refusals, by object."""


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Situation).decode


def situation(engine: Engine, now: float) -> bytes:
    """Work it out. The engine should not be used further: it is a child's."""
    engine.cycle(now)
    engine.open_cycle(now)
    groups = (job for job in engine.state.jobs.values() if job.group is not None)
    return _encode(Situation(
        now, tuple(views_as_they_are(engine)), tuple(as_they_wait(engine)),
        tuple(sorted((group_view(engine, job, now) for job in groups), key=lambda view: view.name)),
        dict(engine.state.problems),
    ))  # fmt: skip


def situation_of(told: bytes) -> Situation:
    """Read a child's answer."""
    found: Situation = _decode(told)
    return found


def explained(engine: Engine, pod: Pod, now: float) -> bytes:
    """Return the JSON of ``pumice explain pod`` for it. The engine should not be used further."""
    return as_json(explain(engine, pod, now=now))


def placed(engine: Engine, key: str) -> bytes | None:
    """The same of a pod that holds a place, which costs no cycle and changes nothing; None for one that the ledger knows not as
    ours."""
    namespace, _, name = key.partition("/")
    found = explain_known(engine, namespace, name)
    return None if found is None else as_json(found)
