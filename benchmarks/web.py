"""The page of a large cluster: its first view, what ten viewers cost, and its memory.

    python -m benchmarks.web [--quick] [--save]

1,000 nodes with 8 cards each and 20,000 pods that hold shares of them, in an API server that only remembers. The page follows
it as `pumice web` does and is asked by HTTP. Then pods come and go, and ten viewers load their pages each time they are
told of news. Checked is that the pages name what is there.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.fake_cluster import FakeCluster
from kit.objects import VGPU, node, pod
from kit.results import arguments
from kit.web_page import TOKEN, OpenPage, open_page

from benchmarks.goals import goals_of
from benchmarks.report import conclude

VIEWERS = 10


def placed(number: int, nodes: int) -> dict[str, Any]:
    on, card = f"n{number % nodes}", number // nodes % 8
    made = pod(f"p{number}", cards=1, mib=2000, cores=20, nodeName=on)
    made["metadata"]["annotations"] |= {f"{VGPU}-ids-new": f"GPU-{on}-{card},NVIDIA,2000,20:", f"{VGPU}-node": on,
                                        f"{VGPU}-time": "1"}  # fmt: skip
    made["status"] = {"phase": "Running"}
    return made


async def timed(page: OpenPage, path: str, says: str) -> float:
    begin = time.perf_counter()
    answer = await page.get(path)
    spent = time.perf_counter() - begin
    assert answer.status == 200, (path, answer.status)
    assert says in answer.words, (path, says)
    return spent


async def viewer(page: OpenPage, path: str) -> int:
    loads = 0
    async with page.session.get(f"{page.address}/events", headers={"Authorization": f"Bearer {TOKEN}"}) as stream:
        async for line in stream.content:
            if line.startswith(b"data"):
                await page.get(path)
                loads += 1
    return loads


async def measure(nodes: int, pods: int, seconds: float) -> dict[str, Any]:
    cluster = FakeCluster()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cluster.put(*(node(f"n{number}", cards=8, mib=16000) for number in range(nodes)))
    cluster.put(*(placed(number, nodes) for number in range(pods)))
    cluster.put(pod("late", mib=99000))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    async with open_page(cluster) as page:
        synced = time.perf_counter() - begin
        found = {"nodes": nodes, "pods": pods, "synced_s": round(synced, 2)}
        first = await timed(page, "", f"{pods} pods hold a part of a card")
        for name, path, says in (("node", "node?name=n1", "Who is on card 0"), ("pods", "pods", "default/p0"),
                                 ("waiting_pod", "pod?namespace=default&name=late", f"0/{nodes} nodes are unavailable"),
                                 ("waiting", "waiting", "late"), ("search", "search?q=p77", "default/p77")):  # fmt: skip
            found[f"{name}_s"] = round(await timed(page, path, says), 3)
        watching = [asyncio.ensure_future(viewer(page, path)) for path in ("", "node?name=n1") * (VIEWERS // 2)]
        await asyncio.sleep(1)
        spent, begin, number = time.process_time(), time.perf_counter(), pods
        while time.perf_counter() - begin < seconds:
            cluster.put(placed(number, nodes))
            number += 1
            await asyncio.sleep(0.5)
        part = (time.process_time() - spent) / (time.perf_counter() - begin)
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**found, "first_view_s": round(first, 3), "core_of_viewers": round(part, 3),
            "memory_beside_the_objects_mib": (after - held) // 1024, "objects_mib": (held - before) // 1024}  # fmt: skip


def main() -> int:
    chosen = arguments(__doc__, quick="100 nodes, 2,000 pods").parse_args()
    found = asyncio.run(measure(100, 2000, 5) if chosen.quick else measure(1000, 20_000, 30))
    goals = goals_of("web", {"first view": found["first_view_s"]})
    return conclude("web", found, goals, keep=chosen.save, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
