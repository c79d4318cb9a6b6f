"""The page of a large cluster: its first view, ten who look while pods come and go, and the memory of its server.

    python -m benchmarks.web [--quick] [--save]

The server runs in a process of its own on 1,000 nodes with 8 cards each and 20,000 pods, of which 500 wait; five pods a second
change. Objects come from a list and a watch in that process, so that the memory is that of the page and not of an API server. A
view is a request over HTTP for a page that was drawn for no version of the cluster so far; its processor time stands beside it,
for a busy machine stretches the other. Viewers have the stream of events open and load their page again at each piece of news, as
web.js does; what following the changes costs is measured without viewers before. The figures of the first page are compared with
what was made.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from kit.objects import VGPU, node, pod
from kit.results import arguments
from kit.web_page import TOKEN, built_in, words_of

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.ports.cluster import ApiError, Json, Resource, WatchEvent
from pumice.web.following import Following
from pumice.web.guard import Guard
from pumice.web.monitors import Monitors
from pumice.web.server import Server, served
from pumice.web.views import ClusterSite, Views

MINUTES = 3
CARDS, MIB, VIEWERS, CHANGES = 8, 2000, 10, 5
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PAGES = ("", "pods", "node?name=n0", "queues", "waiting", "pod?namespace=default&name=late0", "?sort=fill", "jobs", "changes",
         "card?node=n0&uuid=GPU-n0-0")  # fmt: skip


def _placed(number: int, nodes: int, version: int) -> Json:
    on, card = f"n{number % nodes}", number // nodes % CARDS
    made = pod(f"p{number}", cards=1, mib=MIB, cores=10, nodeName=on)
    made["metadata"]["annotations"] |= {
        f"{VGPU}-ids-new": f"GPU-{on}-{card},NVIDIA,{MIB},10:", f"{VGPU}-node": on, f"{VGPU}-time": "1",
    }  # fmt: skip
    made["metadata"]["resourceVersion"] = str(version)
    made["status"] = {"phase": "Running", "podIP": f"10.0.{version % 250}.1"}
    return made


class Made:
    """A cluster whose objects are made when they are told, and kept nowhere. Only what a page asks for is there."""

    def __init__(self, nodes: int, pods: int, late: int) -> None:
        self.nodes, self.pods, self.late = nodes, pods, late

    async def watch(self, resource: Resource, namespace: str = "", **more: Any) -> AsyncIterator[WatchEvent]:
        kind = more.get("kind")
        for count, obj in enumerate(self._objects(resource.plural)):
            yield _event("ADDED", obj, kind)
            if count % 100 == 99:
                await asyncio.sleep(0)
        yield WatchEvent("SYNCED", b"")
        version = 10
        while True:
            await asyncio.sleep(1 / CHANGES)
            if resource.plural == "pods":
                version += 1
                yield _event("MODIFIED", _placed(version * 7 % self.pods, self.nodes, version), kind)

    def _objects(self, plural: str) -> Any:
        if plural == "nodes":
            return (node(f"n{i}", cards=CARDS) for i in range(self.nodes))
        if plural == "pods":
            placed = (_placed(i, self.nodes, 1) for i in range(self.pods - self.late))
            return (*placed, *(pod(f"late{i}", mib=9000) for i in range(self.late)))
        return ()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        if name == "default":
            return {"metadata": {"name": name}}
        raise ApiError(404, "NotFound", name)

    async def list(self, resource: Resource, namespace: str = "", **more: Any) -> Json:
        return {"items": []}

    async def create(self, resource: Resource, obj: Json, namespace: str = "", **more: Any) -> Json:
        raise ApiError(404, "NotFound", resource.plural)


def _event(what: Any, obj: Json, kind: Any) -> WatchEvent:
    raw = msgspec.json.encode(obj)
    return WatchEvent(what, raw) if kind is None else WatchEvent(what, b"", msgspec.json.decode(raw, type=kind, strict=False))


async def serve(nodes: int, pods: int, late: int) -> None:
    """Be the server: say the port, and when all is listed."""
    cluster: Any = Made(nodes, pods, late)
    following = Following(cluster, built_in)
    await following.start()
    server = Server(ClusterSite(following, Views(following, Monitors(cluster, following.clock))), Guard(TOKEN))
    async with served(server, "127.0.0.1", 0) as port:
        following_it = asyncio.ensure_future(following.run())
        while following.unsynced:
            await asyncio.sleep(0.05)
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        following_it.cancel()


class Child:
    """The server's process, and what the kernel counts of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def seconds(self) -> float:
        """Of processor time, its children's that have ended too."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB."""
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


async def read(session: aiohttp.ClientSession, address: str, path: str, tag: str = "") -> tuple[int, str, str]:
    """Status, body and ETag of a page."""
    async with session.get(f"{address}/{path}", headers=HEADERS | ({"If-None-Match": tag} if tag else {})) as answer:
        return answer.status, await answer.text(), answer.headers.get("ETag", "")


async def view(session: aiohttp.ClientSession, address: str, path: str, until: float, loads: list[float]) -> None:
    """One who looks at a page until then."""
    tag = ""
    async with session.get(f"{address}/events", headers=HEADERS, timeout=aiohttp.ClientTimeout(total=None)) as stream:
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    line = await stream.content.readline()
            except TimeoutError:
                return
            if line.startswith(b"data:"):
                begin = time.monotonic()
                status, _, tag = await read(session, address, path, tag)
                assert status in (200, 304), status
                loads.append(1e3 * (time.monotonic() - begin))


async def measure(nodes: int, pods: int, late: int, seconds: float) -> dict[str, Any]:
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.web", "--serve", json.dumps([nodes, pods, late]), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE)  # fmt: skip
    assert made.stdout is not None
    assert made.stdin is not None
    begin = time.monotonic()
    address = f"http://127.0.0.1:{int(await made.stdout.readline())}"
    listed, child = time.monotonic() - begin, Child(made.pid)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            first, work = {}, {}
            for path in PAGES:
                begin, before = time.monotonic(), child.seconds()
                status, text, _ = await read(session, address, path)
                first[path], work[path] = time.monotonic() - begin, child.seconds() - before
                assert status == 200, (path, status)
                if not path:
                    _check(words_of(text), nodes, pods, late)
            again = []
            for _ in range(5):
                await asyncio.sleep(1.2)  # something has changed since
                begin = time.monotonic()
                await read(session, address, "")
                again.append(time.monotonic() - begin)
            before, begin = child.seconds(), time.monotonic()
            await asyncio.sleep(seconds / 2)
            alone = (child.seconds() - before) / (time.monotonic() - begin)
            loads: list[float] = []
            before, begin = child.seconds(), time.monotonic()
            await asyncio.gather(*(view(session, address, PAGES[i % 4], begin + seconds, loads) for i in range(VIEWERS)))
            viewed = (child.seconds() - before) / (time.monotonic() - begin)
            assert len(loads) >= VIEWERS, "viewers heard of nothing"
            return {
                "nodes": nodes, "pods": pods, "listed_s": round(listed, 2), "first_view_s": round(first[""], 3),
                "first_view_cpu_s": round(work[""], 2),
                "first_views_s": {path or "cluster": round(spent, 3) for path, spent in first.items()},
                "first_views_cpu_s": {path or "cluster": round(spent, 2) for path, spent in work.items()},
                "view_again_s": median(again), "following_alone_percent": round(100 * alone, 2),
                "ten_viewers_percent": round(100 * viewed, 2), "viewers_load_ms": median(loads, 1),
                "resident_mib": round(child.resident(), 1),
            }  # fmt: skip
    finally:
        made.stdin.close()
        try:
            await asyncio.wait_for(made.wait(), 10)
        except TimeoutError:
            made.kill()


def _check(words: str, nodes: int, pods: int, late: int) -> None:
    """The figures of the first page are those that were made."""
    assert f"{nodes} nodes. {pods - late} pods hold a part of a card , {late} pods wait" in words, words[:400]
    cards, held = nodes * CARDS, (pods - late) * MIB
    assert re.search(rf"{held} {held} \(\d+ %\) {cards * 8000} MiB", words), words[:900]


def main() -> int:
    """Run it, or be the server of a run."""
    options = arguments(__doc__, quick="50 nodes, 500 pods, six seconds")
    options.add_argument("--serve", help="for its own use")
    chosen = options.parse_args()
    if chosen.serve:
        asyncio.run(serve(*json.loads(chosen.serve)))
        return 0
    found = asyncio.run(measure(50, 500, 20, 6) if chosen.quick else measure(1000, 20_000, 500, 60))
    goals = goals_of("web", {"first view": found["first_view_s"], "ten viewers": found["ten_viewers_percent"],
                             "resident": found["resident_mib"]})  # fmt: skip
    return conclude("web", found, goals, keep=chosen.save, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
