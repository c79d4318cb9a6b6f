"""The page in the browser that comes with `pumice up`: it costs nothing before somebody looks, and ends with its cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.local_cluster import LocalCluster, local_cluster, pumice

pytest.importorskip("jinja2", reason="the extra `web` is not installed")


def pages(data: str) -> list[int]:
    """The processes that serve the page of this data dir."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number, words = int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")
            if b"pumice_lab.web_page" in words and data in os.readlink(entry / "fd" / "1"):
                found.append(number)
    return found


def read(address: str) -> str:
    base, _, token = address.partition("?token=")
    asked = urllib.request.Request(base, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as answer:
        return str(answer.read().decode())


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def address_of(cluster: LocalCluster) -> str:
    said = pumice("status", "--data-dir", str(cluster.data.root))
    assert said.returncode == 0, said.stderr
    (found,) = re.findall(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", said.stdout.replace("\n", ""))
    return str(found)


def test_the_first_request_starts_it_a_killed_one_comes_again_and_it_ends_with_its_cluster(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d") as cluster:
        root = str(cluster.data.root)
        address = address_of(cluster)
        assert pages(root) == []
        assert stat.S_IMODE(cluster.data.web_token.stat().st_mode) == 0o600
        assert address.partition("token=")[2] not in json.dumps(cluster.data.facts())
        assert "Pumice" in read(address)
        (first,) = pages(root)
        assert address.partition("token=")[2].encode() not in Path(f"/proc/{first}/cmdline").read_bytes()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(address + "x")
        until(lambda: "1 nodes" in read(address))
        os.kill(first, signal.SIGKILL)
        until(lambda: not pages(root))
        until(lambda: "1 nodes" in read(address))
        assert first not in pages(root)
        cluster.kill()
        until(lambda: not pages(root))
        cluster.up()
        again = address_of(cluster)
        assert again.partition("?")[0] == address.partition("?")[0]
        assert again != address
        assert "Pumice" in read(again)
        cluster.down()
        assert pages(root) == []
