"""After any history the incremental state equals the state rebuilt from the API objects (design, decision 1)."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, precondition, rule
from kit.auditor import audit
from kit.histories import Events, Json
from kit.objects import node
from kit.slot_family import NODE_CARDS, RESOURCE, SlotFamily

from pumice.engine.placing.placer import Placer
from pumice.engine.state.jobs import Status
from pumice.engine.state.ledger import Hold
from pumice.engine.state.state import State


class Histories(Events):
    """What must hold after each step."""

    @invariant()
    def nothing_is_booked_twice(self) -> None:
        if hasattr(self, "world"):
            found = audit(self.world.nodes.values(), self.world.pods.values())
            assert found == []

    @invariant()
    def incremental_equals_rebuilt(self) -> None:
        if hasattr(self, "world"):
            mine, theirs = self.world.engine.state, self.world.restarted().state
            again = theirs.ledger.fingerprint()
            for part, value in mine.ledger.fingerprint().items():
                assert again[part] == value, part
            away = {h.node for h in mine.ledger.holdings.values()} - mine.ledger.table.row_of.keys()
            if not (self.held_back or away):  # what whole cards of an absent node come to is remembered, not rebuilt
                assert sums(mine) == sums(theirs)

    @invariant()
    def only_what_was_sent_is_held(self) -> None:
        """Between cycles no trial is left on the books, no promise either, and every status has its holding."""
        if hasattr(self, "world"):
            state = self.world.engine.state
            assert not [h.uid for h in state.ledger.holdings.values() if h.state is Hold.RESERVED]
            assert not state.ledger.pipelined
            assert not state.ledger.promised
            for task in state.tasks.values():
                assert task.status not in (Status.ALLOCATED, Status.PIPELINED)
                held = task.uid in state.ledger.holdings
                assert held == (task.status in (Status.BINDING, Status.BOUND, Status.RUNNING, Status.UNKNOWN)
                                or (task.status is Status.RELEASING and bool(task.node)))  # fmt: skip

    @invariant()
    def nobody_sleeps_through_room(self) -> None:
        """A pod that would fit now is looked at in the next cycle, unless its queue or its gang is what it waits for,
        or another gang holds that room until something more is released."""
        if not hasattr(self, "world") or self.world.engine.has_work(self.world.now) or self.world.engine.placer.standing:
            return
        engine = self.world.engine
        fresh = Placer(engine.state, engine.framework)
        for task in engine.state.tasks.values():
            job = task.job
            if task.status is not Status.PENDING or task.gated or job is None or job in engine.state.waiting:
                continue
            if engine.framework.job_valid(job) is None:
                assert fresh.choose(task.cls) is None, task.key

    @invariant()
    def what_is_remembered_of_a_class_equals_a_fresh_look(self) -> None:
        if hasattr(self, "world"):
            engine = self.world.engine
            fresh = Placer(engine.state, engine.framework)
            for cls in {task.cls for task in engine.state.tasks.values()}:
                mine, theirs = engine.placer.choose(cls), fresh.choose(cls)
                assert (mine and (mine.node, mine.grants)) == (theirs and (theirs.node, theirs.grants))

    @precondition(lambda self: hasattr(self, "world"))
    @rule()
    def everything_gone_leaves_nothing(self) -> None:
        """Draining the cluster gives every share back."""
        for key in list(self.world.pods):
            self.world.remove("Pod", key)
        self.held_back.clear()
        state = self.world.engine.state
        assert state.ledger.holdings == {}
        assert all(not u.holders and u.memory == 0 and u.shares == 0 and u.cores == 0 and not u.slots and not u.group
                   for book in state.ledger.books.values() for n in book.nodes.values() for u in n.usages)  # fmt: skip
        assert not state.ledger.table.used.any()
        assert not state.ledger.table.releasing.any()


def sums(state: State) -> dict[str, Any]:
    return {queue.name: (queue.allocated, queue.pending) for queue in state.queues.values() if queue.jobs}


class SlotHistories(Histories):
    """The same histories over exclusive positions and templates."""

    families = [SlotFamily()]  # noqa: RUF012

    def make_node(self, name: str) -> Json:
        made = node(name, cpu="8", extra={RESOURCE: "14"})
        made["metadata"]["annotations"][NODE_CARDS] = "2"
        return made

    def shapes(self, pick: int) -> dict[str, Any]:
        size = (1, 2, 4, 1, 2, 3)[pick]
        return {"limits": {RESOURCE: str(size)}}


_settings = settings(
    max_examples=int(os.environ.get("PUMICE_HISTORIES", "25")), stateful_step_count=40, deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink), suppress_health_check=[HealthCheck.too_slow]
)
TestHistories = Histories.TestCase
TestHistories.settings = _settings
TestSlotHistories = SlotHistories.TestCase
TestSlotHistories.settings = _settings
