"""The cost of the scheduler's journal: processor time of its loop and of all, and bytes, for each decision.

    python -m benchmarks.journal_cost [--quick] [--save] [--decisions 100000] [--keep FOLDER]

Two processes place the same pods on 200 nodes of 8 cards, 50 in a cycle, one of them with a journal, and take turns of 2,000
decisions, so that whatever the machine does beside meets both. A pod is told five times: it comes, is bound, runs, has ended, is
gone; a thousand are there at a time. What the one spends more than the other is the journal's: on the thread of its loop, and in
all its processes (the writer and those who work out snapshots among them). The journal may take 256 MiB for 10^6 decisions,
the default, and as much less as there are fewer, so that it begins as many files, with a snapshot each. Afterwards every file is
played: each cycle must decide the same, bit for bit, all decisions must be there, and both processes must have decided alike.

On a busy machine that difference is mostly noise (its standard error stands beside it): ``notes_us`` is what the notes alone take
on the loop's thread, without an engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from kit.objects import node, pod, queue
from kit.results import arguments
from kit.scheduler_confs import conf, sharing

from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice import __version__
from pumice.adapters.segments import Segments, files_of
from pumice.apps.scheduler.journal import Journal
from pumice.apps.service.garbage import Garbage
from pumice.effects.vocabulary import Bind
from pumice.journal.playing import play
from pumice.journal.reading import parts_of, segment_of
from pumice.journal.recorder import Doorway, Notes
from pumice.journal.records import FORM, SNAPSHOT, Head, frames
from pumice.ports.clock import SystemClock
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Bound, Configure, DropPod, Put, PutPod
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.times import stamp
from pumice.wire.volcano import Queue

MINUTES = 5
TURN, AT_ONCE, ALIVE, RUNS = 2000, 50, 1000, 20
CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), "proportion", "nodeorder", "binpack")
NEAR = [{"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
        for what in ("not-ready", "unreachable")]  # fmt: skip
STANDS = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
MANAGED = [{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": stamp(1_800_000_000), "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:{number}{manager}": {} for number in range(8)}},
                         "f:spec": {f"f:{number}{manager}": {} for number in range(16)}}}
           for manager in ("kube-controller-manager", "pumice-scheduler", "kubelet")]  # fmt: skip
TOKEN = {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}  # fmt: skip


class Line(msgspec.Struct, gc=False):
    """A line of a watch."""

    object: Pod


_decode_line = msgspec.json.Decoder(Line, strict=False).decode


class Stream:
    """Pods that come, are placed and go, told to an engine through its doorway."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.enter = Doorway(self.engine)
        self.rng = random.Random(7)
        self.now, self.serial, self.said = 1000.0, 0, hashlib.blake2b()
        self.running: deque[dict[str, Any]] = deque()

    def begin(self) -> None:
        self.enter(Configure(CONF, "benchmark", False, None))
        self.enter(Put("Queue", convert(Queue, queue("default"))))
        for number in range(200):
            self.enter(Put("Node", convert(Node, node(f"n{number:03}", cards=8, mib=16000, cpu="96", memory="768Gi"))))

    def cycle(self) -> None:
        self.now += 0.01
        wall = 1_800_000_000 + self.now
        fresh = {}
        for _ in range(AT_ONCE):
            made = self._pod(wall)
            fresh[made["metadata"]["uid"]] = made
            self._tell(made)
        plan = self.enter.cycle(self.now, self.rng, wall=wall)
        binds = [effect for effect in plan.effects if isinstance(effect, Bind)]
        assert len(binds) == AT_ONCE, f"{len(binds)} of {AT_ONCE} pods have a place"
        for bind in binds:
            self.said.update(f"{bind.uid} {bind.node} {sorted(bind.annotations.items())}".encode())
            self.enter(Bound(bind.uid))
        for bind in binds:
            made = fresh[bind.uid]
            made["spec"]["nodeName"] = bind.node
            made["metadata"]["annotations"] |= bind.annotations
            made["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
            self._tell(made)
            made["status"] = {"phase": "Running", "startTime": stamp(wall), "conditions": STANDS}
            self._tell(made)
            self.running.append(made)
        while len(self.running) > ALIVE:
            made = self.running.popleft()
            made["status"]["phase"] = "Succeeded"
            self._tell(made)
            self.enter(DropPod(_decode_line(self._line("DELETED", made)).object))

    def _tell(self, made: dict[str, Any]) -> None:
        made["metadata"]["resourceVersion"] = str(10**6 + self.serial)
        self.serial += 1
        self.enter(PutPod(_decode_line(self._line("MODIFIED", made)).object, self.now))

    @staticmethod
    def _line(what: str, made: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"type": what, "object": made})

    def _pod(self, wall: float) -> dict[str, Any]:
        job, uid = self.rng.randrange(40), str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        made = pod(f"train-{job}-{uid[:5]}", mib=1000 * (1 + job % 4), cores=5, cpu="500m", memory="1Gi",
                   labels={"app": f"train-{job}", "batch.kubernetes.io/job-name": f"train-{job}"}, tolerations=NEAR,
                   volumes=[TOKEN])  # fmt: skip
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{job}", "uid": str(uuid.UUID(int=job))}
        made["metadata"] |= {"uid": uid, "creationTimestamp": stamp(wall), "ownerReferences": [owner]}
        made["metadata"].setdefault("annotations", {})
        made["metadata"]["managedFields"] = MANAGED
        return made


def spent() -> dict[str, float]:
    """Processor time of this thread, of this process, and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"loop": time.thread_time(), "own": time.process_time(), "children": ended.ru_utime + ended.ru_stime}


CLOSE_BEHIND = 1 << 20
"""Bytes that wait for the journal's writer at most when the next turn begins: on a busy machine it would never catch up."""


async def work(folder: str, size: int) -> None:
    """One of the two: place as many pods as each line says. ``folder`` empty: without a journal."""
    stream, journal, beside = Stream(), None, None
    if folder:
        first = Head(FORM, __version__, "bench", 1_800_000_000.0, 0, True, ["volcano"])
        journal = Journal(Segments(Path(folder), size), stream.enter, SystemClock(), first)
        journal.begin()
        beside = asyncio.create_task(journal.run())
    stream.begin()
    Garbage().hold_back()
    print(json.dumps(spent()), flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        for _ in range(int(line) // AT_ONCE):
            stream.cycle()
            await asyncio.sleep(0)
        print(json.dumps(spent()), flush=True)
        while journal is not None and journal.waiting > CLOSE_BEHIND:  # no scheduler decides without a pause
            await asyncio.sleep(0.01)
    if journal is not None and beside is not None:
        assert journal.recording, "the journal has stopped"
        beside.cancel()
        await journal.finish()
    print(json.dumps(spent() | {"said": stream.said.hexdigest()}), flush=True)


class Tape:
    """Keeps what notes are told, in their place."""

    def __init__(self) -> None:
        self.told: list[tuple[bool, Any]] = []

    def note(self, *found: Any) -> None:
        self.told.append((False, found))

    def decided(self, *found: Any) -> None:
        self.told.append((True, found))


def alone(runs: int) -> float:
    """Microseconds of the loop's thread for the notes of a decision, without an engine and its noise: the least of some runs."""
    stream, tape, cycles = Stream(), Tape(), ALIVE // AT_ONCE
    stream.begin()
    for number in range(2 * cycles):
        stream.enter.notes = tape if number >= cycles else None  # type: ignore[assignment]
        stream.cycle()
    least = inf
    for _ in range(runs):
        begin = time.thread_time()
        notes = Notes(lambda block: None, lambda cause: None)
        note, decided = notes.note, notes.decided
        for cycle, found in tape.told:
            if cycle:
                decided(*found)
            else:
                note(*found)
        notes.flush()
        least = min(least, time.thread_time() - begin)
    return least / (cycles * AT_ONCE) * 1e6


class Turns:
    """A process that works when it is told to."""

    def __init__(self, folder: str, size: int) -> None:
        words = [sys.executable, "-m", "benchmarks.journal_cost", "--work", folder, "--size", str(size)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.found: list[dict[str, Any]] = [self.heard()]

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a process has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def go(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        self.found.append(self.heard())


def measured(decisions: int, folder: Path) -> dict[str, Any]:
    size = max(8 << 20, (256 << 20) * decisions // 10**6)
    both = {"with": Turns(str(folder), size), "without": Turns("", size)}
    for number in range(decisions // TURN):
        for name in sorted(both, reverse=bool(number % 2)):
            both[name].go(str(TURN))
    for turns in both.values():
        turns.go("")
        turns.process.wait()
    on, off = both["with"].found, both["without"].found
    assert on[-1]["said"] == off[-1]["said"], "with a journal it decided otherwise"

    def each(name: str) -> float:
        sums: list[float] = [found[-1].get(name, 0.0) - found[0].get(name, 0.0) for found in (on, off)]
        return (sums[0] - sums[1]) / decisions * 1e6

    steps = [(b["loop"] - a["loop"]) - (d["loop"] - c["loop"])
             for a, b, c, d in zip(on, on[1:-1], off, off[1:-1], strict=False)]  # fmt: skip
    steps = [step / TURN * 1e6 for step in steps]
    return {
        "decisions": decisions, "bound_bytes": size,
        "us_a_decision_without": round((off[-1]["loop"] - off[0]["loop"]) / decisions * 1e6, 1),
        "loop_us": round(each("loop"), 2), "loop_us_median_of_turns": round(statistics.median(steps), 2),
        "loop_us_standard_error": round(statistics.stdev(steps) / len(steps) ** 0.5, 2) if len(steps) > 1 else None,
        "all_us": round(each("own") + each("children"), 2),
    }  # fmt: skip


def checked(folder: Path, decisions: int) -> dict[str, Any]:
    """Bytes, and what is played of them."""
    files, found, snapshots, size = sorted(files_of(folder)), 0, 0, 0
    begin = time.process_time()
    for path in files:
        size += path.stat().st_size
        snapshots += sum(len(frame.payload) for frame in frames(path.read_bytes()) if frame.kind == SNAPSHOT)
    parts, remarks = parts_of(segment_of(path.name, path.read_bytes()) for path in files)
    assert not remarks, remarks
    for part in parts:
        for played in play(part):
            assert not played.differs, played.differs
            found += len(played.decided.binds)
    assert found == decisions, f"{found:,} of {decisions:,} decisions are in the journal"
    return {"files": len(files), "bytes_a_decision": round(size / decisions, 1), "snapshot_bytes_unpacked": snapshots,
            "replay_us_a_decision": round((time.process_time() - begin) / decisions * 1e6, 1)}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = arguments(__doc__, quick="4,000 decisions, two runs of what takes the least of many")
    options.add_argument("--decisions", type=int, default=100_000)
    options.add_argument("--keep", type=Path, help="keep the journal in this folder")
    options.add_argument("--work", help="(the two processes)")
    options.add_argument("--size", type=int, default=0, help="(the two processes)")
    given = options.parse_args(argv)
    if given.work is not None:
        asyncio.run(work(given.work, given.size))
        return 0
    decisions = 2 * TURN if given.quick else given.decisions // TURN * TURN
    runs = 2 if given.quick else RUNS
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        result = measured(decisions, folder)
        result |= {"notes_us": round(alone(2 * runs), 2)} | checked(folder, decisions)
    goals = goals_of("journal_cost", {
        "loop's thread, a decision": result["loop_us"], "all processes, a decision": result["all_us"],
        "bytes, a decision": result["bytes_a_decision"]})  # fmt: skip
    return conclude("journal_cost", result, [] if given.quick else goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
