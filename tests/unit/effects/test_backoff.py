"""Pauses between tries."""

from __future__ import annotations

from random import Random

from pumice.effects.backoff import Backoff

BACKOFF = Backoff(0.5, 3.0)


def test_a_pause_doubles_with_each_failure_up_to_the_longest() -> None:
    assert [BACKOFF.pause(failures) for failures in (0, 1, 2, 3, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_with_a_random_generator_a_pause_is_half_to_one_and_a_half_times_as_long() -> None:
    rng = Random(1)
    pauses = [BACKOFF.pause(1, rng) for _ in range(1000)]
    assert 0.5 <= min(pauses) < 0.55
    assert 1.45 < max(pauses) < 1.5


def test_a_pause_is_never_shorter_than_what_the_server_asks_for() -> None:
    assert BACKOFF.pause(0, least=7.0) == 7.0
    assert BACKOFF.pause(3, Random(1), least=0.1) > 0.1
