"""The static list server of BS5 and BS6: an API server's lists and watches from bytes that were made before.

    python -m benchmarks.static_server --nodes 5000 --pods 50000 [--pending 1] [--lives 0] [--jobs 0]

A process of its own on loopback, plain HTTP/1.1. It is no API server and the results say so: it keeps no objects but the
pending pods, which it binds, runs and deletes. It tells its parent what happens as JSON lines: the first request, the last page
of the pods, each Binding. ``--lives`` lets that many pods come through the watch, a few hundred at a time: each is deleted after
its Binding and the next one created. Every Binding is checked: a pod twice or a card over its memory ends the server. ``--jobs``:
the bound pods belong to that many running Jobs, of which the last lacks a pod; every write is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from kit.objects import node, pod, queue

from pumice.wire.batch import Job
from pumice.wire.objects import decode
from pumice.wire.times import stamp
from pumice_jobs.controllers.job import group as groups
from pumice_jobs.controllers.job.defaults import completed
from pumice_jobs.controllers.job.reconcile import body as pod_body

MIB, SHARES, CARDS = 81920, 10, 8
CREATED = 1_767_225_600
"""When the first of the bound pods was made; a second later the next."""
IN_FLIGHT = 300
PAGE_ROOM = 100
"""Pages are cut at the size that the client asks for; this many objects at least make a page."""


def bound_pod(index: int, node_index: int, card: int) -> dict[str, Any]:
    """A running pod of 8,000 MiB with the annotations that the scheduler and the node plugin leave, and managedFields."""
    where, uuid = f"n{node_index:05d}", f"GPU-n{node_index:05d}-{card}"
    ids = f"{uuid},NVIDIA,8000,10:"
    obj = pod(f"running-{index}", mib=8000, cores=10, cards=1, cpu="500m", memory="1Gi", nodeName=where, annotations={
        "volcano.sh/vgpu-node": where, "volcano.sh/vgpu-time": "1", "volcano.sh/vgpu-ids-new": ids,
        "volcano.sh/devices-to-allocate": ids, "volcano.sh/bind-phase": "success", "volcano.sh/bind-time": "1",
        "scheduling.k8s.io/group-name": f"podgroup-{index}"})  # fmt: skip
    obj["metadata"]["resourceVersion"] = str(index + 10)
    obj["metadata"]["creationTimestamp"] = stamp(CREATED + index)
    obj["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {
        f"f:field-{n}": {"f:inner": {}, "f:other": {}} for n in range(40)}}]  # fmt: skip
    obj["status"] = {"phase": "Running", "conditions": [{"type": t, "status": "True"} for t in ("Ready", "PodScheduled")]}
    return obj


def running_job(number: int, size: int, *, lacks: int = 0) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A Job with its PodGroup and its pods as its controller has left them, and as many pods fewer as it ``lacks``."""
    name, uid = f"job-{number}", f"{number:08x}-bbbb-4bbb-8ccc-{number:012x}"
    template = {"spec": {"containers": pod("x", mib=8000, cores=10, cards=1, cpu="500m", memory="1Gi")["spec"]["containers"]}}
    there = size - lacks
    state = {"phase": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    obj = {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "generation": 1, "resourceVersion": str(number + 10),
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"minAvailable": size, "queue": "default", "schedulerName": "volcano", "maxRetry": 3,
                 "tasks": [{"name": "main", "replicas": size, "minAvailable": size, "template": template}]},
        "status": {"state": state, "running": there, "minAvailable": size,
                   "taskStatusCount": {"main": {"phase": {"Running": there}}},
                   "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }  # fmt: skip
    job = completed(decode(Job, json.dumps(obj).encode()))
    group = groups.body(job, groups.spec(job, {}))
    group["metadata"] |= {"uid": f"{number:08x}-cccc-4bbb-8ccc-{number:012x}", "resourceVersion": str(number + 10)}
    group["status"] = {"phase": "Running"}
    pods = [pod_body(job, job.spec.tasks[0], index, group["metadata"]["name"]) for index in range(there)]
    return obj, group, pods


def newcomer(number: int, *, mib: int = 8000) -> dict[str, Any]:
    """A pending pod; the labels of its Job are its own."""
    obj = pod(f"new-{number}", mib=mib, cores=mib // 800, cards=1, cpu="100m", labels={"job-name": f"job-{number // 4}"})
    obj["metadata"]["uid"] = f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}"
    return obj


def beat(number: int) -> bytes:
    obj = node(f"n{number:05d}", cards=CARDS, mib=MIB, cpu="192", memory="1536Gi")
    obj["metadata"]["resourceVersion"] = "@"
    obj["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "@"}]
    return json.dumps({"type": "MODIFIED", "object": obj}).encode()


def say(**what: Any) -> None:
    print(json.dumps({"at": time.time(), **what}), flush=True)


class Store:
    """Lists as ready bytes, and the few pods that change."""

    def __init__(self, nodes: int, pods: int, pending: int, lives: int, jobs: int = 0) -> None:
        self.jobs = jobs
        self.version = 1_000_000
        node_objects = [node(f"n{i:05d}", cards=CARDS, mib=MIB, cpu="192", memory="1536Gi") for i in range(nodes)]
        for number, obj in enumerate(node_objects):
            obj["metadata"]["resourceVersion"] = str(number + 10)
        # Nodes fill in order; binpack's best card for the newcomer is the last, half-filled one.
        places = [(card // CARDS, card % CARDS) for card in range(pods // SHARES + 1)]
        self.ready = {
            "nodes": [json.dumps(obj).encode() for obj in node_objects],
            "pods": [json.dumps(bound_pod(i, *places[i // SHARES])).encode() for i in range(pods)],
            "queues": [json.dumps(queue(name)).encode() for name in ("default", "root")],
        }
        if jobs:
            self.ready |= self.belonging(jobs, pods // jobs)
        self.beats = [beat(number) for number in range(nodes)]
        self.cards: dict[str, int] = {}
        for i in range(pods):
            where, card = places[i // SHARES]
            self.cards[f"GPU-n{where:05d}-{card}"] = self.cards.get(f"GPU-n{where:05d}-{card}", 0) + 8000
        self.pending: dict[str, dict[str, Any]] = {}
        self.bound = 0
        self.born = 0
        self.lives, self.reported = lives, 0
        self.events: list[tuple[int, bytes]] = []
        self.listeners: dict[str, set[Connection]] = {"nodes": set(), "pods": set()}
        for _ in range(pending):
            self.create(8000)

    def belonging(self, jobs: int, size: int) -> dict[str, list[bytes]]:
        """The pods as those of Jobs, with the Jobs and their groups."""
        queues = [queue(name) | {"status": {"state": "Open"}} for name in ("default", "root")]
        queues[0]["spec"] = {**queues[0]["spec"], "parent": "root"}
        tables: dict[str, list[bytes]] = {"jobs": [], "podgroups": [], "pods": [],
                                          "queues": [json.dumps(obj).encode() for obj in queues]}  # fmt: skip
        for number in range(jobs):
            job, group, pods = running_job(number, size, lacks=int(number == jobs - 1))
            tables["jobs"].append(json.dumps(job).encode())
            tables["podgroups"].append(json.dumps(group).encode())
            for index, made in enumerate(pods):
                plain = json.loads(self.ready["pods"][number * size + index])
                for key in ("labels", "annotations"):
                    plain["metadata"][key] = {**plain["metadata"].get(key, {}), **made["metadata"][key]}
                plain["metadata"] |= {key: made["metadata"][key] for key in ("name", "ownerReferences")}
                tables["pods"].append(json.dumps(plain).encode())
        return tables

    def stamp(self, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)

    def create(self, mib: int) -> None:
        obj = newcomer(self.born, mib=mib)
        self.born += 1
        self.pending[obj["metadata"]["name"]] = obj
        self.report("ADDED", obj)

    def report(self, type_: str, obj: dict[str, Any]) -> None:
        self.stamp(obj)
        line = json.dumps({"type": type_, "object": obj}).encode() + b"\n"
        if not self.lives:
            self.events.append((self.version, line))
        for listener in self.listeners["pods"]:
            listener.chunk(line)

    def bind(self, name: str, body: dict[str, Any]) -> int:
        """The status of the answer. Ends the process when a card would be over."""
        obj = self.pending.get(name)
        if obj is None:
            return 404
        if obj["spec"].get("nodeName"):
            return 409
        notes = body["metadata"]["annotations"]
        uuid, _, mib, _ = notes["volcano.sh/vgpu-ids-new"].rstrip(":;").split(",")
        self.cards[uuid] = self.cards.get(uuid, 0) + int(mib)
        if self.cards[uuid] > MIB:
            say(error=f"card {uuid} is over: {self.cards[uuid]} of {MIB} MiB")
            raise SystemExit(1)
        self.bound += 1
        obj["spec"]["nodeName"] = body["target"]["name"]
        obj["metadata"]["annotations"].update(notes)
        obj["status"] = {"phase": "Running"}
        self.report("MODIFIED", obj)
        if self.lives:
            self.report("DELETED", self.pending.pop(name))
            self.cards[uuid] -= int(mib)
            self.next_life()
        else:
            say(bound=self.bound, name=name, node=obj["spec"]["nodeName"])
        return 201

    def next_life(self) -> None:
        if self.born < self.lives:
            self.create(1000 + 100 * (self.born % 40))
        step = max(1, self.lives // 20)
        if self.bound // step > self.reported or self.bound == self.lives:
            self.reported = self.bound // step
            say(lives=self.bound)


class Connection(asyncio.Protocol):
    """One connection of the client: requests one after the other, or a watch."""

    store: Store
    seen: dict[str, bool]

    def __init__(self) -> None:
        self.buffer = b""
        self.table = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for listeners in self.store.listeners.values():
            listeners.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].decode("latin-1")
            length = 0
            for line in head.split("\r\n")[1:]:
                if line[:15].lower() == "content-length:":
                    length = int(line[15:])
            if len(self.buffer) < end + 4 + length:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
            verb, target, _ = head.split("\r\n", 1)[0].split(" ")
            self.answer(verb, target, body)

    def answer(self, verb: str, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        words = dict(word.partition("=")[::2] for word in query.split("&"))
        if not self.seen:
            self.seen["first"] = True
            say(first_request=True)
        if verb == "POST" and path.endswith("/binding"):
            self.send(self.store.bind(path.split("/")[-2], json.loads(body)), b'{"kind":"Status","status":"Success"}')
        elif verb != "GET" and self.store.jobs:
            say(write=f"{verb} {path}", name=json.loads(body or b"{}").get("metadata", {}).get("name", ""))
            self.send(201 if verb == "POST" else 200, body)
        elif verb != "GET":
            self.send(201 if verb == "POST" else 200, b'{"metadata":{}}')
        elif "watch" in words:
            self.watch(path.rsplit("/", 1)[1], int(words.get("resourceVersion") or 0))
        else:
            of_none = words.get("labelSelector", "").startswith(("!", "%21"))
            table = "" if of_none and self.store.jobs else path.rsplit("/", 1)[1]
            self.list(table, int(words.get("limit", "500")), int(words.get("continue", "0")))

    def list(self, table: str, limit: int, start: int) -> None:
        objects = self.store.ready.get(table, [])
        items = objects[start : start + max(limit, PAGE_ROOM)]
        metadata = {"resourceVersion": str(self.store.version)}
        if start + len(items) < len(objects):
            metadata["continue"] = str(start + len(items))
        elif table == "pods":
            items = [*items, *(json.dumps(obj).encode() for obj in self.store.pending.values())]
        self.send(200, b'{"kind":"List","metadata":%s,"items":[%s]}' % (json.dumps(metadata).encode(), b",".join(items)))
        if table == "pods" and "continue" not in metadata:
            say(last_page=True)

    def watch(self, table: str, since: int) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.transport.write(head.encode())
        if table in self.store.listeners:
            self.store.listeners[table].add(self)
        if table == "pods":
            for version, line in self.store.events:
                if version > since:
                    self.chunk(line)
            while self.store.lives and self.store.born < min(IN_FLIGHT, self.store.lives):
                self.store.next_life()

    def chunk(self, line: bytes) -> None:
        self.transport.write(b"%x\r\n%s\r\n" % (len(line), line))

    def send(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve(store: Store, beats: float) -> None:
    Connection.store, Connection.seen = store, {}
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    say(port=server.sockets[0].getsockname()[1])
    number = 0
    while True:
        await asyncio.sleep(1 / beats)
        store.version += 1
        number += 1
        line = store.beats[number % len(store.beats)].replace(b'"@"', b'"%d"' % store.version) + b"\n"
        for listener in store.listeners["nodes"]:
            listener.chunk(line)


def run_server() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("nodes", 5000), ("pods", 50_000), ("pending", 1), ("lives", 0), ("jobs", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--beats", type=float, default=50, help="node heartbeats per second")
    given = parser.parse_args()
    asyncio.run(serve(Store(given.nodes, given.pods, given.pending, given.lives, given.jobs), given.beats))


if __name__ == "__main__":
    run_server()
