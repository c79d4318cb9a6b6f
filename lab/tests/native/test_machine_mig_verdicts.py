"""Every verdict on random MIG calls is that of an independent checker of NVIDIA's rules."""

from __future__ import annotations

import json
import sys

import pytest
from kit.machines import MachineMaker, Programs
from kit.mig_rules import RULES, Partitioned, Verdict


def verdicts(programs: Programs, calls: int, seed: int) -> int:
    """Runs so many random calls in a process of their own; how many verdicts differed."""
    words = (sys.executable, "-m", "benchmarks.machine_mig", "--calls", str(calls), "--seed", str(seed))
    report = json.loads(programs.run(*words, timeout=max(60, calls / 500)))
    assert report["calls"] == calls
    return int(report["mismatches"])


def test_ten_thousand_random_calls_are_judged_alike(make_machine: MachineMaker) -> None:
    assert verdicts(Programs(make_machine("L4")), 10_000, seed=7) == 0


@pytest.mark.soak
def test_a_million_random_calls_are_judged_alike(make_machine: MachineMaker) -> None:
    assert verdicts(Programs(make_machine("L4")), 1_000_000, seed=1) == 0


def test_the_driver_places_a_mixed_geometry_as_the_guide_shows(make_machine: MachineMaker) -> None:
    """MIG user guide, "Instance geometry", examples 1 and 2, and the order that seven 1g instances are printed in."""
    run = Programs(make_machine("A100-SXM4-40GB"))
    run.smi("-mig", "1")

    def made(*profiles: str, code: int = 0) -> list[int]:
        printed = run.smi("mig", "-cgi", ",".join(profiles), code=code)
        return [int(line.split("ID")[1].split()[0]) for line in printed.splitlines() if line.startswith("Successfully")]

    assert made("19", "14", "5") == [13, 5, 1]
    run.smi("mig", "-dgi")
    assert made("19", "19", "14", "9", code=6) == [13, 11, 3]
    run.smi("mig", "-dgi")
    assert made(*["19"] * 7) == [13, 11, 12, 7, 8, 9, 10]


@pytest.mark.parametrize("model", list(RULES))
def test_the_checker_itself_knows_full_cards_overlaps_and_media(model: str) -> None:
    card = Partitioned(RULES[model])
    whole, small, media = 0, max(card.rules), next(number for number, rule in card.rules.items() if rule.media)
    assert card.verdict(whole) is Verdict.SUCCESS
    card.place(1, media, 0)
    assert card.verdict(whole) is Verdict.FULL
    assert card.verdict(media) is Verdict.FULL
    assert card.verdict(small, 99) is Verdict.INVALID
    assert card.verdict(77) is Verdict.INVALID
    card.instances[1].computing = 1
    assert card.removal(1) is Verdict.IN_USE
    assert card.removal(2) is Verdict.NOT_FOUND
