"""The journal of a daemon: what is there after it was stopped, killed or found the disk full is played again bit for bit."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from pathlib import Path

import pytest
from kit.objects import node, pod
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.adapters.segments import Segments, files_of
from pumice.apps.scheduler.daemon import Settings
from pumice.cli.main import main
from pumice.journal.playing import play
from pumice.journal.reading import Part, parts_of, whole_of
from pumice.journal.records import FORM, Head, head
from pumice.model.errors import BadInput
from pumice.wire.kubernetes import MIRROR


def parts(folder: Path) -> tuple[list[Part], list[str]]:
    """Nothing, as long as the first file has not its head yet."""
    try:
        return parts_of(whole_of((path.name, path.read_bytes()) for path in sorted(files_of(folder)))[0])
    except BadInput:
        return [], []


def placed(found: list[Part]) -> int:
    """Play everything. Returns how many pods were placed in it."""
    binds = 0
    for part in found:
        for one in play(part):
            assert not one.differs, one.differs
            binds += len(one.decided.binds)
    return binds


def ends(words: list[str]) -> object:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def test_a_daemons_journal_is_played_again_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), settings=Settings(journal=tmp_path)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await create(running.cluster, pod("b", mib=10**6))
            await running.bind_all("a")
            await running.clock.sleep(5)

    run_virtually(story())
    found, remarks = parts(tmp_path)
    assert placed(found) == 1
    assert not remarks
    assert ends(["replay", str(tmp_path)]) == 0
    assert "every decision is the same, bit for bit" in capsys.readouterr().out


def test_a_static_pod_that_claims_a_card_holds_none_in_the_journal_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), settings=Settings(journal=tmp_path)) as running:
            forged = {MIRROR: "1", "volcano.sh/vgpu-node": "n1", "volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,8000,100:"}
            await create(running.cluster, pod("static", mib=100, nodeName="n1", annotations=forged))
            await create(running.cluster, pod("a", mib=6000))
            await running.bind_all("a")
            await running.clock.sleep(5)

    run_virtually(story())
    found, _ = parts(tmp_path)
    assert placed(found) == 1


def test_of_a_daemon_that_is_killed_what_was_written_is_played(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), settings=Settings(journal=tmp_path)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            await running.clock.sleep(5)
            await running.die()

    run_virtually(story())
    until = time.monotonic() + 30
    while not placed(parts(tmp_path)[0]) and time.monotonic() < until:  # its writer takes true time
        time.sleep(0.1)
    assert placed(parts(tmp_path)[0]) == 1


def test_a_full_disk_stops_the_journal_and_never_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, append = tmp_path / "full", Segments.append

    def failing(self: Segments, content: bytes) -> None:
        if full.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, content)

    monkeypatch.setattr(Segments, "append", failing)

    async def story() -> None:
        async with daemon(node("n1", cards=4), settings=Settings(journal=tmp_path)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            while not placed(parts(tmp_path)[0]):  # its writer takes true time
                await running.clock.sleep(1)
            full.touch()
            await create(running.cluster, pod("b", mib=4000))
            await running.bind_all("b")
            while "\npumice_journal_recording 0" not in (await running.page("/metrics"))[1]:
                await running.clock.sleep(1)
            await running.clock.sleep(70)
            assert "\npumice_journal_recording 0" in (await running.page("/metrics"))[1]
            full.unlink()
            while "\npumice_journal_recording 1" not in (await running.page("/metrics"))[1]:
                await running.clock.sleep(5)
            await create(running.cluster, pod("c", mib=4000))
            await running.bind_all("c")
            await running.clock.sleep(1)

    with caplog.at_level(logging.INFO, "pumice.scheduler.journal"):
        run_virtually(story())
    said = [record.getMessage() for record in caplog.records if record.name == "pumice.scheduler.journal"]
    assert [text.partition(" folder")[0] for text in said] == ["journal stopped", "journal goes on"]
    found, _ = parts(tmp_path)
    assert [part.snapshot is not None for part in found] == [False, True]
    assert placed(found) == 2, "a and c: while the disk was full nothing was kept"


def test_the_journal_takes_no_more_than_it_may_and_plays_from_its_oldest_file(tmp_path: Path) -> None:
    bound = 64 << 10
    sizes: list[int] = []

    async def story() -> None:
        async with daemon(node("n1", cards=8), settings=Settings(journal=tmp_path, journal_size=bound)) as running:
            for number in range(70):
                await create(running.cluster, pod(f"p{number}", mib=100, labels={"app": f"{number * 7919:040}"}))
                await running.bind_all(f"p{number}")
                await running.clock.sleep(0.5)
                await asyncio.to_thread(time.sleep, 0.1)  # its writer takes true time
                sizes.append(sum(path.stat().st_size for path in files_of(tmp_path)))

    run_virtually(story())
    assert max(sizes) <= bound
    found, remarks = parts(tmp_path)
    assert not remarks
    assert found[0].snapshot is not None, "the first file of the run is gone"
    assert placed(found) > 0


def test_another_versions_journal_is_refused_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, version, word in ((FORM + 1, "9.9", "this pumice reads form"), (FORM, "9.9", "written by pumice 9.9")):
        (tmp_path / "x.pumice-journal").write_bytes(head(Head(form, version, "a", 0.0, 0, True, ["volcano"])))
        assert ends(["replay", str(tmp_path)]) == 2
        assert word in capsys.readouterr().err
