"""The embedded API server alone: lists of 10,000 pods, a small read beside forty of them, restart, idle watches, writes; `up`.

    python -m benchmarks.embedded_server [--pods 10000] [--repeats 5] [--quick] [--save]

The server is a process of its own, spoken to over TLS by connections that stay open; a client that does next to nothing beside
reading shares the machine with it. ``write`` creates ConfigMaps over 32 connections; all of them have to be there afterwards, and
so do the pods after the server was killed. ``up`` starts `pumice up` with one node and two emulated cards in a fresh directory
until it says that the cluster is ready, from compiled modules, as an installed package has them; its memory is the share of all
its processes (PSS) ten seconds later. Then another client reads and writes beside a Deployment and a Job of 2^31 pods, and beside
the deletion of their namespace.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kit.results import arguments

from benchmarks.daemon import as_installed
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude, median

MINUTES = 3
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
SMALL = "/api/v1/namespaces/default"
WRITERS, LISTS = 32, 40
TEAM, MOST = "endless", 2**31 - 1
_SETTLED = 10.0


@dataclass(slots=True)
class Line:
    """One connection, one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    token: str

    async def ask(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> tuple[int, bytes]:
        self.send(method, path, body, accept)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        code = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in head:
            parts = []
            while size := int(await self.reader.readline(), 16):
                parts.append(await self.reader.readexactly(size))
                await self.reader.readline()
            await self.reader.readline()
            return code, b"".join(parts)
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        return code, await self.reader.readexactly(int(length.partition(b":")[2]))

    def send(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\nAccept: {accept}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nUser-Agent: load\r\n\r\n"
        self.writer.write(head.encode() + body)

    def close(self) -> None:
        self.writer.close()


async def connect(kubeconfig: Path) -> Line:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    return Line(*await asyncio.open_connection(host, int(port), ssl=tls, limit=1 << 20), user["token"])


async def lines(stack: AsyncExitStack, server: Server, count: int) -> list[Line]:
    found = []
    for _ in range(count):
        line = await connect(server.kubeconfig)
        stack.callback(line.close)
        found.append(line)
    return found


def pod(number: int) -> bytes:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "60"], "resources": {
        "limits": {"cpu": "1", "memory": "1Gi", "volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}}}  # fmt: skip
    labels = {"app": f"app-{number % 100}", "team": f"team-{number % 7}"}
    return json.dumps({"metadata": {"name": f"pod-{number:05}", "labels": labels}, "spec": {"containers": [container]}}).encode()


async def write(found: Sequence[Line], path: str, bodies: Sequence[bytes]) -> float:
    """Seconds for all of them. Raises AssertionError for one that was not taken."""
    left = iter(bodies)

    async def work(line: Line) -> None:
        for body in left:
            code, answer = await line.ask("POST", path, body)
            assert code == 201, answer

    began = time.perf_counter()
    await asyncio.gather(*(work(line) for line in found))
    return time.perf_counter() - began


async def taken(line: Line, path: str, accept: str = "application/json") -> tuple[float, bytes]:
    began = time.perf_counter()
    code, body = await line.ask("GET", path, accept=accept)
    assert code == 200, body
    return time.perf_counter() - began, body


async def beside_lists(found: Sequence[Line], small: Line) -> list[float]:
    """Milliseconds of small reads while every other connection reads all pods."""
    lists = [asyncio.ensure_future(taken(line, PODS)) for line in found]
    await asyncio.sleep(0.05)
    times = []
    while not all(each.done() for each in lists):
        times.append((await taken(small, SMALL))[0] * 1000)
        await asyncio.sleep(0.01)
    await asyncio.gather(*lists)
    return times


def endless(kind: str) -> tuple[str, bytes]:
    """A Deployment or a Job of 2^31 pods that fit nowhere: where it is created, and its body."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {
        "containers": [{"name": "c", "image": "busybox"}], "nodeSelector": {"no": "where"}}}  # fmt: skip
    if kind == "jobs":
        template["spec"]["restartPolicy"] = "Never"
        return f"/apis/batch/v1/namespaces/{TEAM}/jobs", json.dumps(
            {"metadata": {"name": "a"}, "spec": {"parallelism": MOST, "template": template}}).encode()  # fmt: skip
    return f"/apis/apps/v1/namespaces/{TEAM}/deployments", json.dumps({"metadata": {"name": "a"}, "spec": {
        "replicas": MOST, "selector": {"matchLabels": {"app": "a"}}, "template": template}}).encode()  # fmt: skip


async def beside_endless(kubeconfig: Path, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of small reads and writes of another client while those pods are made, and while their namespace goes."""
    times: dict[str, list[float]] = {"read": [], "write": []}
    one, other = await connect(kubeconfig), await connect(kubeconfig)

    async def spend() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            times["read"].append((await taken(other, SMALL))[0] * 1000)
            began = time.perf_counter()
            code, answer = await other.ask("POST", MAPS, b'{"metadata": {"generateName": "beside-"}}')
            assert code == 201, answer
            times["write"].append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.02)

    for kind in ("deployments", "jobs"):
        for path, body in (("/api/v1/namespaces", json.dumps({"metadata": {"name": TEAM}}).encode()), endless(kind)):
            code, answer = await one.ask("POST", path, body)
            assert code == 201, answer
        await spend()
        assert (await one.ask("DELETE", f"/api/v1/namespaces/{TEAM}"))[0] == 200
        await spend()
        async with asyncio.timeout(MINUTES * 60):
            while (await one.ask("GET", f"/api/v1/namespaces/{TEAM}"))[0] == 200:
                await asyncio.sleep(0.2)
    one.close()
    other.close()
    return {name: sorted(found) for name, found in times.items()}


def memory(server: Server) -> float:
    """MiB resident."""
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) / 1024


async def served(pods: int, watches: int, writes: int, repeats: int) -> dict[str, Any]:
    async with api_server("embedded") as server, AsyncExitStack() as stack:
        before = memory(server)
        idle = await lines(stack, server, watches)
        for line in idle:
            line.send("GET", f"{PODS}?watch=true&resourceVersion=1")
        for line in idle:
            await line.reader.readuntil(b"\r\n\r\n")
        watching = memory(server) - before
        for line in idle:
            line.close()
        writers = await lines(stack, server, WRITERS)
        small = json.dumps({"data": {"key": "value"}})
        rates = []
        for turn in range(repeats):
            bodies = [json.dumps({"metadata": {"name": f"map-{turn}-{i}"}, **json.loads(small)}).encode() for i in range(writes)]
            rates.append(writes / await write(writers, MAPS, bodies))
        await write(writers, PODS, [pod(number) for number in range(pods)])
        (one,) = await lines(stack, server, 1)
        plain = [(await taken(one, PODS))[0] for _ in range(repeats)]
        tables = [(await taken(one, PODS, TABLE))[0] for _ in range(repeats)]
        readers = await lines(stack, server, LISTS)
        slowest = [max(await beside_lists(readers, one)) for _ in range(min(repeats, 2))]
        loaded = memory(server)
        restarts = []
        for _ in range(min(repeats, 3)):
            await server.kill()
            began = time.perf_counter()
            await server.start_again()
            restarts.append(time.perf_counter() - began)
        again = await connect(server.kubeconfig)
        assert len(json.loads((await taken(again, PODS))[1])["items"]) == pods
        kept = {item["metadata"]["name"] for item in json.loads((await taken(again, MAPS))[1])["items"]}
        assert {f"map-{turn}-{i}" for turn in range(repeats) for i in range(writes)} <= kept
        again.close()
    return {"list_s": median(plain), "table_s": median(tables), "small_read_ms": median(slowest, 1),
            "restart_s": median(restarts), "writes_per_s": median(rates, 0), "watches_mib": round(watching, 1),
            "loaded_mib": round(loaded, 1)}  # fmt: skip


async def up(repeats: int, beside: float) -> dict[str, Any]:
    ready, resident, times = [], [], dict[str, list[float]]()
    for turn in range(repeats):
        with tempfile.TemporaryDirectory(prefix="pumice-bench-") as place:
            words = ("-m", "pumice", "up", "--emulated", "--data-dir", place, "--pod-network", "none")
            began = time.perf_counter()
            process = await asyncio.create_subprocess_exec(sys.executable, *words, "-d", stdout=asyncio.subprocess.PIPE,
                                                           stderr=asyncio.subprocess.STDOUT, env=as_installed())  # fmt: skip
            said, _ = await process.communicate()
            ready.append(time.perf_counter() - began)
            try:
                assert process.returncode == 0, said.decode(errors="replace")
                if turn == 0:
                    await asyncio.sleep(_SETTLED)
                    resident.append(share_of(place))
                    times = await beside_endless(Path(place) / "kubeconfig", beside)
            finally:
                down = await asyncio.create_subprocess_exec(sys.executable, "-m", "pumice", "down", "--data-dir", place,
                                                            stdout=asyncio.subprocess.DEVNULL)  # fmt: skip
                await down.wait()
    beside_ms = {f"{name}_p{part}": round(found[min(len(found) - 1, len(found) * part // 100)], 1)
                 for name, found in times.items() for part in (50, 99, 100)}  # fmt: skip
    return {"ready_s": median(ready, 2), "idle_mib": median(resident, 1), "beside_endless_ms": beside_ms}


def share_of(place: str) -> float:
    """MiB that the processes have which were started with this directory, and their children; shared pages in parts."""
    parents: dict[int, int] = {}
    named: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if place.encode() in (entry / "cmdline").read_bytes():
                    named.add(int(entry.name))
            except OSError:
                continue  # it has ended
    while more := {pid for pid, parent in parents.items() if parent in named} - named:
        named |= more
    total = 0
    for pid in named:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))
    return total / 1024


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one repeat with a tenth of everything")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    if given.quick:
        given.repeats, given.pods, given.watches, given.writes = 1, given.pods // 10, given.watches // 10, given.writes // 10
    result = {"server": "embedded", "pods": given.pods, "watches": given.watches, "writes": given.writes,
              "alone": asyncio.run(served(given.pods, given.watches, given.writes, given.repeats)),
              "up": asyncio.run(up(given.repeats, 2.0 if given.quick else 20.0))}  # fmt: skip
    alone, whole = result["alone"], result["up"]
    goals = goals_of("embedded_server", {
        "list of all pods": alone["list_s"]["median"], "table of all pods": alone["table_s"]["median"],
        "small read beside forty lists, slowest": alone["small_read_ms"]["max"], "restart": alone["restart_s"]["median"],
        "idle watches": alone["watches_mib"], "writes of small objects": alone["writes_per_s"]["median"],
        "up: ready": whole["ready_s"]["median"], "up: idle": whole["idle_mib"]["max"],
        "small read beside 2^31 pods, slowest": whole["beside_endless_ms"]["read_p100"],
        "small write beside 2^31 pods, slowest": whole["beside_endless_ms"]["write_p100"],
    })  # fmt: skip
    return conclude("embedded_server", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
