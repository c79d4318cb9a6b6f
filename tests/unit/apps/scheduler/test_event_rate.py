"""Which events the scheduler writes: no warning twice within ten minutes, and no more than the rate beyond a burst."""

from __future__ import annotations

from pumice.apps.scheduler.event_rate import REPEAT_AFTER, EventRate
from pumice.engine.effects import Event


def event(uid: str = "p", type_: str = "Warning") -> Event:
    return Event("Pod", "v1", "ns1", uid, uid, type_, "FailedScheduling", "no node has the card")


def test_a_warning_is_said_again_after_ten_minutes_and_not_before() -> None:
    rate = EventRate()
    assert [rate.admits(event(), now) for now in (0.0, 1.0, REPEAT_AFTER - 1, REPEAT_AFTER)] == [True, False, False, True]
    assert rate.admits(event("another"), REPEAT_AFTER)


def test_what_went_well_may_be_said_again_at_once() -> None:
    rate = EventRate()
    assert [rate.admits(event(type_="Normal"), now) for now in (0.0, 0.1)] == [True, True]


def test_beyond_the_burst_events_pass_at_the_rate_and_what_was_held_back_counts_as_unsaid() -> None:
    rate = EventRate(rate=2.0, burst=3.0, _left=3.0)
    assert [rate.admits(event(str(number)), 0.0) for number in range(5)] == [True, True, True, False, False]
    assert [rate.admits(event(str(number)), 1.0) for number in range(3, 6)] == [True, True, False]
