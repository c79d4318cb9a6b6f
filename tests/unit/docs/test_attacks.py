"""The page of attacks says what its table says, and every attempt that is held or refused has its test."""

from __future__ import annotations

import pytest
from kit import attacks
from kit.attacks import OPEN, PAGE, ROOT, Attack

EVERY = [attack for _, part in attacks.parts() for attack in part]


def test_the_page_is_the_table() -> None:
    """``make made``"""
    assert PAGE.read_text() == attacks.render()


def test_there_are_sixty_attempts_of_a_process() -> None:
    assert len(attacks.FROM_INSIDE) >= 60


def test_there_are_forty_attempts_by_kubernetes_alone() -> None:
    assert len(EVERY) - len(attacks.FROM_INSIDE) >= 40
    assert len({attack.attempt for attack in EVERY}) == len(EVERY)


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: attack.attempt)
def test_what_is_held_or_refused_is_shown_by_a_test_that_is_there(attack: Attack) -> None:
    if attack.outcome == OPEN:
        assert not attack.shown
        return
    path, _, name = attack.shown.partition("::")
    assert name in attacks.tests_of(ROOT / path)
