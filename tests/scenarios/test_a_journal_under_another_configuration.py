"""Recorded inputs are played with another configuration, and what starts earlier, later or never is said with names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.objects import node, pod
from kit.scheduler_confs import conf
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.main import main
from pumice.wire.kinds import PODS

LATER = 100.0


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A card for two: a and b hold it, c waits until a ends after 100 s, and d fits nowhere."""
    folder = tmp_path_factory.mktemp("day")

    async def story() -> None:
        async with daemon(node("n1", cards=1), settings=Settings(journal=folder)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await create(running.cluster, pod("b", mib=4000))
            await running.bind_all("a", "b")
            await create(running.cluster, pod("c", mib=4000, queue="default"))
            await create(running.cluster, pod("d", mib=10**6))
            await running.clock.sleep(LATER)
            await running.cluster.delete(PODS, "a", "default", grace=0)
            await running.bind_all("c")
            await running.clock.sleep(50)

    run_virtually(story())
    return folder


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def test_with_its_own_configuration_everything_starts_when_it_did(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kit.scheduler_daemon import CONF

    (tmp_path / "same.conf").write_text(CONF)
    code, out, _ = answer(capsys, "replay", str(day), "--conf", str(tmp_path / "same.conf"), "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert [variant["variant"] for variant in found["variants"]][::2] == ["its own configuration", "as it was"]
    for variant in found["variants"]:
        starts = variant["starts"]
        assert set(starts) == {"default/a", "default/b", "default/c"}
        assert abs(starts["default/c"][0] - LATER) < 5
        assert variant["waits"] == ["default/d"]
    for difference in found["differences"]:
        assert not any(difference[what] for what in ("placed_only_there", "placed_only_in_base", "sooner", "later"))


def test_a_configuration_that_shares_no_cards_starts_nobody_and_the_reason_is_said(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare.conf").write_text(conf("gang", "predicates", "nodeorder"))
    code, out, _ = answer(capsys, "diff", str(day), "--conf", str(tmp_path / "bare.conf"))
    assert code == 0
    assert "3 no longer placed: default/a, default/b, default/c" in out
    assert "default/c waited: 0/1 nodes" in out
    assert "card-hours idle" in out


def test_two_days_are_compared_by_the_names_of_pods(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"

    async def story() -> None:
        async with daemon(node("n1", cards=2), settings=Settings(journal=other)) as running:
            for name in "abcd":
                await create(running.cluster, pod(name, mib=4000))
            await running.bind_all("a", "b", "c", "d")
            await running.clock.sleep(20)

    run_virtually(story())
    code, out, _ = answer(capsys, "diff", str(day), str(other), "-o", "json")
    (found,) = json.loads(out)["differences"]
    assert code == 0
    assert found["placed_only_there"] == ["default/d"]
    assert found["sooner"] == ["default/c"]
    assert not found["later"]


@pytest.mark.parametrize(("words", "said"), [
    (["diff", "DAY"], "one of them"), (["diff", "DAY", "DAY", "--conf", "x"], "one of them"),
    (["diff", "DAY", "--conf", "/nowhere"], "/nowhere"), (["replay", "/nowhere", "--conf", "x"], "/nowhere"),
    (["diff", "DAY", "DAY", "-o", "jsn"], "json"), (["diff", __file__, "DAY"], "no journal"),
])  # fmt: skip
def test_what_cannot_be_compared_is_one_line(
    day: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, _, err = answer(capsys, *(str(day) if word == "DAY" else word for word in words))
    assert code == 2
    assert said in err.splitlines()[-1]
    assert len(err.splitlines()) == 1
