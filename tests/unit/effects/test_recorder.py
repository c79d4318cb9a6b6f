"""Which events are written, and how: no warning twice within ten minutes, and no more than the rate beyond a burst."""

from __future__ import annotations

import logging

from kit.faulty_cluster import faulty_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.effects.recorder import REPEAT_AFTER, EventRecorder, SpamFilter
from pumice.effects.vocabulary import Event
from pumice.ports.cluster import Json
from pumice.wire.kinds import EVENTS

log = logging.getLogger("tester")


def event(uid: str = "p", type_: str = "Warning") -> Event:
    return Event("Pod", "v1", "default", uid, uid, type_, "FailedScheduling", "no node has the card")


def test_a_warning_is_said_again_after_ten_minutes_and_not_before() -> None:
    rate = SpamFilter()
    assert [rate.admits(event(), now) for now in (0.0, 1.0, REPEAT_AFTER - 1, REPEAT_AFTER)] == [True, False, False, True]
    assert rate.admits(event("another"), REPEAT_AFTER)


def test_what_went_well_may_be_said_again_at_once() -> None:
    rate = SpamFilter()
    assert [rate.admits(event(type_="Normal"), now) for now in (0.0, 0.1)] == [True, True]


def test_beyond_the_burst_events_pass_at_the_rate_and_what_was_held_back_counts_as_unsaid() -> None:
    rate = SpamFilter(rate=2.0, burst=3.0, _left=3.0)
    assert [rate.admits(event(str(number)), 0.0) for number in range(5)] == [True, True, True, False, False]
    assert [rate.admits(event(str(number)), 1.0) for number in range(3, 6)] == [True, True, False]


def recorded(*events: Event, counts: bool = False) -> list[Json]:
    """The Events on the server after these were written by one recorder."""

    async def story() -> list[Json]:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        recorder = EventRecorder(cluster, clock, "tester", log, host="n1", counts=counts)
        for each in events:
            await recorder.write(each)
        return list((await cluster.list(EVENTS))["items"])

    return run_virtually(story())


def test_an_event_says_what_it_is_about_and_who_speaks() -> None:
    (found,) = recorded(event())
    assert found["involvedObject"] == {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "p", "uid": "p"}
    assert (found["source"], found["reportingInstance"]) == ({"component": "tester", "host": "n1"}, "n1")
    assert (found["type"], found["reason"], found["action"]) == ("Warning", "FailedScheduling", "FailedScheduling")


def test_the_same_event_again_is_another_one_unless_it_is_counted() -> None:
    assert [each["count"] for each in recorded(event(), event(), event("another"))] == [1, 1, 1]
    assert sorted(each["count"] for each in recorded(event(), event(), event("another"), counts=True)) == [1, 2]


def test_an_object_of_no_namespace_is_told_of_in_default() -> None:
    (found,) = recorded(Event.on_node("n1", "Normal", "CardRecovered", "card 0"))
    assert found["metadata"]["namespace"] == "default"
    assert "namespace" not in found["involvedObject"]


def test_words_that_were_said_last_are_not_repeated_until_the_object_is_forgotten() -> None:
    async def story() -> int:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        recorder = EventRecorder(cluster, clock, "tester", log)
        for _ in range(2):
            await recorder.write_if_new(event())
        recorder.forget("p")
        await recorder.write_if_new(event())
        return len((await cluster.list(EVENTS))["items"])

    assert run_virtually(story()) == 2
