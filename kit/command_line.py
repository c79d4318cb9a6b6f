"""A command, called inside the test's own process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kit.device_world import V100, card, limits, pod_of, vgpu_node
from kit.scheduler_confs import conf, sharing
from pumice.cli import flags, reading
from pumice.cli.cluster_snapshot import ClusterSnapshot, decisions_of, save, trimmed
from pumice.wire import names
from pumice.wire.objects import Node, Pod


@dataclass(frozen=True)
class Called:
    """``exception``: what it raised, also where it ended itself."""

    stdout: str
    stderr: str
    exit_code: int
    exception: BaseException | None


def call(app: flags.App, words: Sequence[str]) -> Called:
    raised: BaseException | None = None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            reading.run(app.build(), words)
        except (Exception, SystemExit) as error:
            raised = error
    code = 0 if raised is None else 1
    if isinstance(raised, SystemExit):
        code = raised.code if isinstance(raised.code, int) else int(raised.code is not None)
    return Called(out.getvalue(), err.getvalue(), code, raised)


# -- A case file for the commands that answer from one


CONF = conf("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), actions="enqueue, allocate")


def write_case(folder: Path) -> Path:
    """Two V100 on one node, one of them half full, and pods that wait."""
    node = vgpu_node("n1", card("GPU-aaa", 16384, 10, V100), card("GPU-bbb", 16384, 10, V100))
    node.status.allocatable["pods"] = 110
    old = pod_of("old", limits(1, 10000), node="n1", annotations={names.VGPU_IDS: "GPU-aaa,NVIDIA,10000,0:"})
    old.status.phase = "Running"
    pods = [old]
    for name, wanted in {"both": limits(2, 8000), "gib": limits(1, "8Gi"), "bytes": limits(1, 8589934592 // 4)}.items():
        pod = pod_of(name, wanted)
        pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
        pods.append(pod)
    objects = {
        "nodes": [trimmed(msgspec.to_builtins(node), Node)],
        "pods": [trimmed(msgspec.to_builtins(pod), Pod) for pod in pods],
    }
    case = ClusterSnapshot(now=1000.0, scheduler_conf=CONF, objects=objects)
    case.decisions = decisions_of(case)
    path = folder / "case.json"
    path.write_text(save(case))
    return path
