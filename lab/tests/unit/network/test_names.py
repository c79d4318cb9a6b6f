"""The names of pods in each other's /etc/hosts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pumice_lab.network.names import PodNames

HEAD = "127.0.0.1 localhost\n"


def _pod(name: str, subdomain: str = "", namespace: str = "default") -> dict:
    return {"metadata": {"uid": f"{namespace}/{name}", "name": name, "namespace": namespace}, "spec": {"subdomain": subdomain}}


def _names(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().removeprefix(HEAD).splitlines():
        address, *names = line.split()
        for name in names:
            found.setdefault(name, []).append(address)
    return found


async def _until(path: Path, name: str, addresses: list[str]) -> None:
    async with asyncio.timeout(60):
        while _names(path).get(name, []) != addresses:
            await asyncio.sleep(0.01)


def test_a_pod_is_known_by_every_form_of_its_name_and_all_pods_by_that_of_the_service(tmp_path: Path) -> None:
    async def run() -> None:
        names, hosts = PodNames(), tmp_path / "hosts"
        names.add(_pod("a-0", "a"), "a-0", "10.9.0.1")
        names.add(_pod("a-1", "a"), "a-1", "10.9.0.2")
        names.follow("default/a-0", "default", hosts, HEAD)
        assert hosts.read_text().startswith(HEAD)
        found = _names(hosts)
        for form in ("", ".default", ".default.svc", ".default.svc.cluster.local"):
            assert found[f"a-1.a{form}"] == ["10.9.0.2"]
            assert found[f"a{form}"] == ["10.9.0.1", "10.9.0.2"]

    asyncio.run(run())


def test_who_comes_later_is_known_and_who_is_gone_is_not(tmp_path: Path) -> None:
    async def run() -> None:
        names, hosts = PodNames(), tmp_path / "hosts"
        names.add(_pod("a-0", "a"), "a-0", "10.9.0.1")
        names.follow("default/a-0", "default", hosts, HEAD)
        inode = hosts.stat().st_ino
        names.add(_pod("a-1", "a"), "a-1", "10.9.0.2")
        await _until(hosts, "a-1.a", ["10.9.0.2"])
        names.remove("default/a-1")
        await _until(hosts, "a-1.a", [])
        assert _names(hosts)["a-0.a"] == ["10.9.0.1"]
        assert hosts.stat().st_ino == inode, "a container has this very file mounted"

    asyncio.run(run())


def test_names_end_at_the_namespace_and_a_pod_without_a_subdomain_has_none(tmp_path: Path) -> None:
    async def run() -> None:
        names, hosts = PodNames(), tmp_path / "hosts"
        names.add(_pod("far", "job", "elsewhere"), "far", "10.9.0.1")
        names.add(_pod("bare"), "bare", "10.9.0.2")
        names.follow("default/bare", "default", hosts, HEAD)
        assert hosts.read_text() == HEAD

    asyncio.run(run())


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        names, gone, stays = PodNames(), tmp_path / "gone", tmp_path / "stays"
        names.follow("default/gone", "default", gone, HEAD)
        names.follow("default/stays", "default", stays, HEAD)
        gone.unlink()
        names.add(_pod("a-0", "a"), "a-0", "10.9.0.1")
        await _until(stays, "a-0.a", ["10.9.0.1"])
        assert not gone.exists()

    asyncio.run(run())
