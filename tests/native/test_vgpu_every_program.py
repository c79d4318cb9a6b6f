"""Whatever asks, and however many have asked before it, is told the share: sequences of programs in one container.

The first program that uses a card names the cards for all who come after it; what it leaves behind must change no answer. So each
way of asking follows each other one, in a container that is new or was restarted, in which programs were killed or are running.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path

import pytest
from kit.vgpu_kit import FIGURES as WAYS
from kit.vgpu_kit import MIB, Container, build, python
from kit.vgpu_talk import Tenant
from kit.walled import Walled, page_of

from pumice.wire.limits_page import GrantedCard
from pumice_lab import machine

CARDS = "2xA100-SXM4-40GB"
SHARES = (3000, 2500)
HELD = 512
KINDS = ("limits page", "limits page in another order", "region")


def container_of(kind: str, directory: Path) -> Container:
    """A container with a share of both cards of the machine, by a limits page or by its environment."""
    model, place = machine.machine_of(CARDS), directory / "m"
    machine.create(model, place)
    said = {f"CUDA_DEVICE_MEMORY_LIMIT_{card}": f"{share}m" for card, share in enumerate(SHARES)}
    said["PATH"] = f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    if kind == "region":
        return Container(place, directory, said)
    granted = [GrantedCard(card.uuid, share * MIB) for card, share in zip(model.cards, SHARES, strict=True)]
    return Walled(place, directory, said, page=page_of(*(granted[::-1] if "other order" in kind else granted)))


@pytest.fixture(params=KINDS)
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    build()
    return container_of(request.param, tmp_path)


def requested(container: Container, *ways: str, card: int = 0) -> Iterator[tuple[str, dict[str, int]]]:
    """Each way with the figures that it was told of a card, the ways after one another in one run of the container."""
    ran = container.run(*python("figures.py", *ways), timeout=240, DEVICE=str(card))
    assert ran.code == 0, ran.err
    assert ran.err == ""
    return zip(ways, map(json.loads, ran.out.splitlines()), strict=True)


def assert_share(way: str, reported: Mapping[str, int], held: int = 0, share: int = SHARES[0]) -> None:
    """Every figure is of the share: its size, and what the container holds of it beside what the program itself does."""
    totals = {figure: value for figure, value in reported.items() if figure.endswith("total")}
    assert set(totals.values()) == {share}, (way, reported)
    for figure, total in totals.items():
        of = figure.removesuffix("total")
        if f"{of}used" in reported:
            assert reported[f"{of}used"] + reported[f"{of}free"] == total, (way, reported)
    used = {figure: value for figure, value in reported.items() if figure.endswith("used") and "context" not in figure}
    own = reported.get("context used", held) - held if "cuda, nvml" in way else 0
    assert set(used.values()) <= {held + own}, (way, reported)
    assert reported.get("context free", 0) + held < share, (way, reported)


def each_after_each(ways: tuple[str, ...]) -> list[str]:
    """A sequence in which every way comes after every one, itself too (de Bruijn's)."""
    left = {way: list(ways) for way in ways}
    path, walk = [], [ways[0]]
    while walk:
        if left[walk[-1]]:
            walk.append(left[walk[-1]].pop())
        else:
            path.append(walk.pop())
    assert set(pairwise(path)) == set(product(ways, ways))
    return path


@pytest.mark.parametrize("container", KINDS[::2], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_the_first_the_second_and_the_tenth_program_are_told_the_share_and_so_are_those_after_a_restart(
    container: Container, way: str
) -> None:
    for programs in (10 if way == "nvidia-smi" else 3, 1, 1):
        for one, reported in requested(container, *[way] * programs):
            assert_share(one, reported)


@pytest.mark.parametrize(("container", "ways"), [(kind, WAYS if "other" in kind else each_after_each(WAYS)) for kind in KINDS],
                         indirect=["container"], ids=KINDS)  # fmt: skip
def test_every_program_after_every_other_one_is_told_the_share(container: Container, ways: Sequence[str]) -> None:
    """In which order a page lists the cards says nothing of who asks after whom: there each way comes once."""
    for card, share in enumerate(SHARES):
        for way, reported in requested(container, *(WAYS if card else ways), card=card):
            assert_share(way, reported, share=share)


def test_programs_beside_a_running_one_and_after_a_killed_one_are_told_what_is_held(container: Container) -> None:
    with Tenant(container) as tenant:
        before = tenant.ask("info")[0]
        assert tenant.ask(f"alloc {HELD * MIB}") == 0
        held = SHARES[0] - before // MIB + HELD
        for way, reported in requested(container, *WAYS):
            assert_share(way, reported, held)
        for way, reported in requested(container, *WAYS, card=1):
            assert_share(way, reported, share=SHARES[1])
        tenant.process.kill()
        tenant.process.wait()
    for way, reported in requested(container, *WAYS):
        assert_share(way, reported)


def test_a_card_that_was_not_granted_has_nothing_for_every_program(tmp_path: Path) -> None:
    build()
    model = machine.machine_of(CARDS)
    machine.create(model, tmp_path / "m")
    container = Walled(tmp_path / "m", tmp_path, {}, page=page_of(GrantedCard(model.cards[0].uuid, SHARES[0] * MIB)))
    for _ in ("new", "restarted"):
        for _, reported in requested(container, "nvml", "nvml, fork", "nvml", card=1):
            assert {value for figure, value in reported.items() if figure.endswith(("total", "free"))} == {0}, reported
        for way, reported in requested(container, "nvml", "nvml"):
            assert_share(way, reported)
