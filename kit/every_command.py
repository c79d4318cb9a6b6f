"""Every command of the product, called in an installation without the laboratory: for its help, and in earnest, as far as it
comes on a machine without cards and in a cluster that somebody else runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import yaml

from kit.command_line import write_case
from kit.command_pages import groups
from kit.local_cluster import LocalCluster
from kit.region_files import Proc, region_bytes, write
from pumice.cli.main import COMMANDS
from pumice.ports.cluster import Json
from pumice.wire.kinds import PODS

Python = Callable[[str, str], "CompletedProcess[str]"]
"""Runs a program with the installation's interpreter, and gives it an input."""
LABORATORYS = frozenset(name for name, (module, _) in COMMANDS.items() if not module)
ASK = frozenset({"inspect", "job", "jobflow", "jobtemplate", "pod", "queue", "usage"})
"""Commands that do nothing but ask a cluster."""
ANY = -1
"""The exit code of a call of which nothing is known: 0, 1 or 2."""
ENDLESS = ("scheduler", "controller", "webhook", "monitor", "device-plugin", "dra-driver")
"""Arguments by command. One that runs until it is stopped is given something that it refuses after it has been loaded."""


@dataclass(frozen=True)
class Call:
    """``says``: what must stand in its output, or in the line with which it refuses (``code`` 2)."""

    words: str
    says: str
    code: int = 0


def without_cluster(folder: Path) -> Iterator[Call]:
    """Return what is called on a machine without cards; ``folder`` is for the files that commands read."""
    case = write_case(folder)
    region = write(folder / "r" / "vgpu.cache", region_bytes(procs=(Proc(7, {0: (1, 2, 3, 6)}),)))
    pod, layout, foreign = folder / "pod.yaml", folder / "mig.yaml", folder / "foreign.yaml"
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1000}
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
    body: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                  "spec": {"schedulerName": "volcano", "containers": [container]}}  # fmt: skip
    pod.write_text(yaml.safe_dump(body))
    container["resources"] = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}}
    foreign.write_text(yaml.safe_dump(body))
    layout.write_text("version: v1\nmig-configs:\n  all: [{devices: all, mig-enabled: false}]\n")
    yield Call("pumice --help", "Usage: pumice COMMAND")
    yield Call("pumice --version", "pumice 0")
    yield Call("pumice __complete explain --f", "--from")
    yield Call("pumice completion bash", "complete -o bashdefault")
    yield Call("pumice run --memory 1000 -- /bin/true", "no NVIDIA driver answers", 2)
    yield Call("pumice run --emulated -- true", "needs the laboratory of Pumice", 2)
    yield Call("pumice ps", "No program runs")
    yield Call("pumice top --once", "nothing to watch", 2)
    yield Call("pumice top --kubeconfig /nonexistent", "/nonexistent", 2)
    yield Call("pumice limit r9 --cores 20", "no program of `pumice run`", 2)
    yield Call("pumice docker run --engine /nonexistent --memory 1000 image", "there is no such program", 2)
    yield Call("pumice slurm prolog", "SLURM_JOB_ID is not set", 2)
    yield Call("pumice slurm task-prolog", "SLURM_JOB_ID is not set", 2)
    yield Call("pumice slurm epilog", "SLURM_JOB_ID is not set", 2)
    yield Call("pumice share list", "There is no share with a name")
    yield Call("pumice jupyter install --python /bin/false", "not a Python that works", 2)
    yield Call(f"pumice vgpu status {region}", "1.2")
    yield Call("pumice burn --kernels 1", "no CUDA driver on this machine", 2)
    yield Call(f"pumice mig plan -f {layout}", "cannot load libnvidia-ml.so.1", 2)
    yield Call(f"pumice explain pod both --from {case}", "both")
    yield Call(f"pumice explain waiting --from {case}", "WAITS")
    yield Call(f"pumice fits -f {pod} --from {case}", "p")
    yield Call(f"pumice replay {case}", "")
    yield Call(f"pumice diff {case} --conf {pod}", "no journal of a scheduler", 2)
    yield Call(f"pumice simulate --from {case}", "placed")
    yield Call(f"pumice defrag plan --for both --from {case}", "no plan of up to 4 moves was found", 1)
    yield Call(f"pumice claim fits -f {pod} --from {case}", "p")
    yield Call(f"pumice lint {pod}", "1 file")
    yield Call(f"pumice convert {foreign}", "volcano.sh/vgpu-memory")
    yield Call("pumice bench --list", "part of the source tree", 2)
    yield Call("pumice doctor node -o json", '"apiVersion"', 1)
    yield Call("pumice dump --kubeconfig /nonexistent", "/nonexistent", 2)
    yield Call("pumice web --kubeconfig /nonexistent", "/nonexistent", 2)
    yield Call("pumice web --listen-address 0.0.0.0:0", "others could read the token", 2)
    yield Call("pumice web --machine --kubeconfig /nonexistent", "leave out either", 2)
    yield Call("pumice web --machine --in-cluster", "leave out either", 2)
    yield Call("vcctl version", "API Version")
    for name in LABORATORYS:
        yield Call(f"pumice {name}", "needs the laboratory of Pumice", 2)
    for name in ENDLESS:
        kind = " nvidia" if name in ("device-plugin", "dra-driver") else ""
        yield Call(f"pumice {name}{kind} --kubeconfig /nonexistent --node-name n1" if kind or name == "monitor"
                   else f"pumice {name} --kubeconfig /nonexistent", "/nonexistent", 2)  # fmt: skip


def without_words(called: Sequence[Call]) -> list[Call]:
    """Return a call of each command that these leave out: it does something, or says in one line what it wants."""
    named = {call.words.split()[1] for call in called if call.words.startswith("pumice ")}
    return [Call(f"pumice {name}", "", ANY) for name in COMMANDS if name not in named | ASK]


def furnish(cluster: LocalCluster, python: Python) -> None:
    """Give a cluster a Job with a pod that runs, by the installation's own vcctl."""
    words = f"vcctl job run -N j -n default -k {cluster.data.kubeconfig} -i busybox -R cpu=1m,memory=1Mi"
    (done,) = outcomes(python, [words.split()])
    assert done.returncode == 0, done.stderr

    async def runs(kube: object) -> bool:
        pods = (await kube.list(PODS, "default"))["items"]  # type: ignore[attr-defined]
        return any(pod["metadata"]["name"] == "j-default0-0" for pod in pods)

    cluster.wait(runs)


def in_a_cluster(cluster: LocalCluster, folder: Path) -> Iterator[Call]:
    """Return what is asked of a cluster with the Job of ``furnish``."""
    requested, pod = f"--kubeconfig {cluster.data.kubeconfig}", "j-default0-0"
    yield Call(f"vcctl pod list {requested}", pod)
    yield Call(f"pumice pod list {requested}", pod)
    yield Call(f"vcctl job list {requested}", "j ")
    yield Call(f"vjobs {requested}", "j ")
    yield Call(f"pumice job view -N j {requested}", "Min Available")
    yield Call(f"vcctl queue list {requested}", "default")
    yield Call(f"vqueues {requested}", "default")
    yield Call(f"vcctl queue get -n default {requested}", "default")
    yield Call(f"vcctl jobflow list {requested}", "No resources found")
    yield Call(f"vcctl jobtemplate list {requested}", "No resources found")
    yield Call(f"pumice explain pod {pod} {requested}", pod)
    yield Call(f"pumice explain job j {requested}", "j")
    yield Call(f"pumice explain waiting {requested}", "")
    yield Call(f"pumice explain queue default {requested}", "default")
    yield Call(f"pumice fits -f {folder / 'pod.yaml'} {requested}", "")
    yield Call(f"pumice dump -o {folder / 'dump.json'} {requested}", "")
    yield Call(f"pumice replay {folder / 'dump.json'}", "")
    yield Call(f"pumice inspect gpushare {requested}", "")
    yield Call(f"pumice doctor cluster -o json {requested}", '"apiVersion"', 1)
    yield Call(f"pumice top --once --data-dir {cluster.data.root}", "pods")


def wrong(call: Call, done: CompletedProcess[str]) -> str:
    """Return what is wrong with how it ended; empty: nothing."""
    reported = f"{call.words}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}"
    taken = {ANY: (0, 1, 2), 1: (0, 1)}.get(call.code, (call.code,))
    if "Traceback" in done.stderr or done.returncode not in taken:
        return reported
    if done.returncode == 2 and (done.stderr.count("\n"), done.stdout) != (1, ""):
        return reported
    return "" if re.search(re.escape(call.says), done.stderr if done.returncode == 2 else done.stdout) else reported


PROGRAM = """
import gc, json, os, sys
from pumice.cli import main
from pumice_jobs.cli import vcctl
for name, (module, _) in main.COMMANDS.items():
    if module:
        main.load(name)  # once for all
import pumice.adapters.kube
gc.collect()
gc.freeze()
for line in sys.stdin:
    words = json.loads(line)
    out, err = os.memfd_create("out"), os.memfd_create("err")
    child = os.fork()
    if not child:
        os.dup2(out, 1)
        os.dup2(err, 2)
        main.main(words[1:]) if words[0] == "pumice" else vcctl.main(words[1:], words[0])
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, *(os.pread(said, 1 << 20, 0).decode() for said in (out, err))]), flush=True)
"""
"""For the installation's Python: a child for each line of words, a JSON list; prints how each ended and what it said."""


def outcomes(python: Python, calls: Sequence[Sequence[str]]) -> list[CompletedProcess[str]]:
    """Call them one after the other in one installation."""
    done = python(PROGRAM, "".join(json.dumps([*words]) + "\n" for words in calls))
    assert done.returncode == 0, done.stderr
    said = map(json.loads, done.stdout.splitlines())
    return [CompletedProcess(words, *one) for words, one in zip(calls, said, strict=True)]


def all_that_is_wrong(python: Python, calls: Sequence[Call]) -> str:
    """Return what is wrong, in words; empty: nothing."""
    done = outcomes(python, [call.words.split() for call in calls])
    return "\n".join(filter(None, map(wrong, calls, done)))


def helps() -> list[Call]:
    """Return the call for help of each command of the product with all below it, and of the short forms of vcctl."""
    found = [one for commands in groups().values() for top in commands for one in top.all()]
    kept = [one.words for one in found if one.words.removeprefix("pumice ").partition(" ")[0] not in LABORATORYS]
    return [Call(f"{words} --help", "Usage") for words in kept]
