"""A container's mounts exist inside, and the host stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab.tests.unit.runtime.box import Box, Inside

from pumice_lab.runtime.spec import Mount


def test_mount_points_that_the_host_lacks_exist_inside_only(inside: Inside, tmp_path: Path) -> None:
    wanted = ["/etc/ld.so.preload", "/usr/local/vgpu", "/tmp/vgpulock", "/pumice-test-volume/deep/er"]
    places = [place if not os.path.lexists(place) else f"{place}-of-a-test" for place in wanted]
    before = {parent: _listing(parent) for parent in ("/etc", "/usr/local", "/")}
    (tmp_path / "preload").write_text("")

    async def work(here: Box) -> None:
        volume = here.folder("volume")
        mounts = (Mount(str(tmp_path / "preload"), places[0], True), *(Mount(volume, place) for place in places[1:]))
        code, text = await here.run(
            f"for p in {' '.join(places)}; do ls -d $p; done; echo data > {places[3]}/file; cat {places[1]}/file; "
            "test -x /usr/bin/env && ls /etc/passwd /usr/local/lib -d", mounts=mounts)
        assert code == 0, text
        assert text.splitlines() == [*places, "data", "/etc/passwd", "/usr/local/lib"]
        assert Path(volume, "file").read_text() == "data\n"

    inside(work)
    assert {parent: _listing(parent) for parent in before} == before
    assert not any(os.path.lexists(place) for place in places)


def _listing(path: str) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat(follow_symlinks=False).st_ino) for entry in os.scandir(path))


def test_the_host_sees_no_new_mounts_while_a_container_runs(inside: Inside) -> None:
    def mounts() -> list[str]:
        return Path("/proc/self/mounts").read_text().splitlines()

    async def work(here: Box) -> None:
        before = mounts()
        await here.start("sleep", "100", mounts=(Mount(here.folder("v"), "/usr/local/vgpu"),))
        assert mounts() == before

    inside(work)


def test_a_mount_inside_a_volume_is_made_in_the_volume_and_its_files_stay(inside: Inside) -> None:
    async def work(here: Box) -> None:
        outer, inner = here.folder("outer"), here.folder("inner")
        Path(inner, "hello").write_text("inner")
        code, text = await here.run("cat /data/sub/hello; echo; echo kept > /data/own", mounts=(
            Mount(inner, "/data/sub"), Mount(outer, "/data")))
        assert (code, text) == (0, "inner")
        assert Path(outer, "own").read_text() == "kept\n"

    inside(work)


def test_a_read_only_mount_refuses_writes(inside: Inside) -> None:
    async def work(here: Box) -> None:
        code, text = await here.run("echo x > /conf/file", mounts=(Mount(here.folder("ro"), "/conf", True),))
        assert code != 0
        assert "Read-only file system" in text

    inside(work)


def test_links_in_the_target_are_followed_inside_the_container(inside: Inside) -> None:
    if not os.path.islink("/var/run"):
        pytest.skip("/var/run is no link here")

    async def work(here: Box) -> None:
        volume = here.folder("token")
        Path(volume, "token").write_text("t")
        target = "/var/run/secrets/kubernetes.io/serviceaccount"
        assert await here.run(f"cat {target}/token; echo", mounts=(Mount(volume, target),)) == (0, "t")

    inside(work)
