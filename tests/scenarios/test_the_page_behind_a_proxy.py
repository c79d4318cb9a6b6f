"""The page in a cluster behind a real reverse proxy, as an Ingress is one: nginx with a path prefix, all else as it comes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import aiohttp
import pytest
from kit.objects import group, node, pod, queue

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import ReviewingCluster, open_for_viewers

from pumice_lab.free_ports import free_port

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt-get install nginx-light)")
PREFIX = "/teams/gpu/"
CONF = """\
daemon off; pid {folder}/pid; worker_processes 1;
events {{}}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d;
  scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port};
    location {prefix} {{ proxy_pass http://127.0.0.1:{to}/; }}
  }}
}}
"""


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src", "action") and value is not None]


@asynccontextmanager
async def proxied(to: int, folder: Path) -> AsyncIterator[str]:
    """Yield the address of the page behind nginx."""
    assert NGINX is not None
    port = free_port()
    (folder / "conf").write_text(CONF.format(folder=folder, port=port, to=to, prefix=PREFIX))
    command = [NGINX, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as nginx:
        try:
            async with asyncio.timeout(60):
                while not (folder / "pid").exists() or not (folder / "pid").read_text():
                    assert nginx.poll() is None, (folder / "error.log").read_text()
                    await asyncio.sleep(0.05)
            yield f"http://127.0.0.1:{port}{PREFIX}"
        finally:
            nginx.terminate()


def test_all_links_stay_below_the_prefix_news_come_at_once_and_each_sees_his_own(tmp_path: Path) -> None:
    cluster = ReviewingCluster()
    cluster.put(node("n1", cards=2), queue("team"), group("g", minimum=2, queue="team"), pod("late", mib=9000), pod("m", mib=1))
    cluster.users = {"of-all": "admin", "of-none": "mallory"}
    cluster.rights = {"admin": {("*", "")}}

    async def at(session: aiohttp.ClientSession, address: str) -> None:
        async with session.get(address) as answer:
            assert (answer.status, "n1" in await answer.text()) == (401, False)
        async with session.get(f"{address}pods", headers={"Authorization": "Bearer of-none"}) as answer:
            assert (answer.status, "late" in await answer.text()) == (200, False)
        mine = {"Authorization": "Bearer of-all"}
        seen, ahead = set[str](), [address]
        while ahead:
            url = ahead.pop()
            async with session.get(url, headers=mine, allow_redirects=False) as answer:
                assert answer.status == 200, url
                seen.add(url)
                if answer.content_type != "text/html":
                    continue
                links = Links()
                links.feed(await answer.text())
            for link in links.found:
                to = urldefrag(urljoin(url, link))[0]
                assert to.startswith(address), (url, link)
                if to not in seen and to not in ahead:
                    ahead.append(to)
        assert {f"{address}{path}" for path in ("pods", "queue?name=team", "static/web.css", "static/web.js", "node?name=n1",
                                                "pod?namespace=default&name=late")} <= seen  # fmt: skip
        async with asyncio.timeout(30), session.get(f"{address}events", headers=mine) as stream:
            before = await stream.content.readline()
            assert before.startswith(b"data: ")
            cluster.put(pod("newcomer", mib=100))
            while (line := await stream.content.readline()) in (b"\n", b": here\n", before):
                pass
            assert line.startswith(b"data: ")
        assert "of-all" not in (tmp_path / "access.log").read_text()

    async def run() -> None:
        async with open_for_viewers(cluster) as (page, _), proxied(page.port, tmp_path) as address:
            await at(page.session, address)

    asyncio.run(asyncio.wait_for(run(), 200))
