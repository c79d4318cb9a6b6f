"""``pumice up``: a cluster on this machine."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import MODELS
from pumice.cli.daemon import default_data_dir, shown_default
from pumice.model.errors import BadInput, PumiceError, Unavailable
from pumice.wire import variables
from pumice_lab.datadir import DataDir
from pumice_lab.spec import DEFAULT_MODEL, OVERRULING, ClusterSpec, load, overruled, uniform

app = flags.App()
START_SECONDS = 90.0
SHAPE = ("nodes", "cards", "model", "mig")
"""Options that say what the nodes are."""
MOST_SAID = 1 << 20
SETTLING_SECONDS = 10.0
STOP = "Stop it with Ctrl-C or: "


@app.command(epilog="Example: pumice up -d --nodes 4 --cards 8 --model A100-SXM4-80GB")
def up(
    ctx: flags.Context,
    nodes: Annotated[int, flags.Option(help="How many emulated nodes.")] = 1,
    cards: Annotated[int, flags.Option(help="Cards per emulated node.")] = 2,
    model: Annotated[str, flags.Option(help="Card model, e.g. A100-SXM4-80GB, H200, Tesla-T4."), MODELS] = DEFAULT_MODEL,
    mig: Annotated[bool, flags.Option("--mig", help="Emulated cards have MIG mode on.")] = False,
    config: Annotated[
        Path | None, flags.Option(help="A cluster.yaml, in place of the options above; those below win over it.")
    ] = None,
    data_dir: Annotated[
        Path | None, flags.Option(help="Where the cluster lives; kept between runs.", show_default=shown_default())
    ] = None,
    detach: Annotated[bool, flags.Option("-d", "--detach", help="Return once the cluster is ready.")] = False,
    port: Annotated[int, flags.Option(help="Port of the API server; 0: that of the last time, or a free one.")] = 0,
    emulated: Annotated[bool, flags.Option("--emulated", help="Emulated cards even where there are real ones.")] = False,
    bare: Annotated[bool, flags.Option("--bare", help="Without our daemons: deploy them by deploy/manifests.")] = False,
    control_plane: Annotated[str, flags.Option(help="embedded, or kube: the real etcd and kube-apiserver.")] = "embedded",
    pod_network: Annotated[
        str, flags.Option(help="Pods' own addresses (root): a range such as 10.77.0.0/16; none: pods share this machine's.")
    ] = "auto",
    check: Annotated[bool, flags.Option("--check", help="Only look for damage in the embedded server's database.")] = False,
) -> None:
    """Bring up a cluster on this machine and keep it running until Ctrl-C (or in the background with -d).

    Real NVIDIA cards are used when there are any and no shape was asked for; else the cards are emulated, which is said.
    """
    data = DataDir((data_dir or default_data_dir()).expanduser().absolute())
    if check:
        raise SystemExit(_check(data))
    if detach:
        _detached(data, [a for a in sys.argv[1:] if a not in ("-d", "--detach")])
        return
    if config is not None:
        spec = _of_file(config, ctx)
    else:
        shaped = (nodes, cards, model, mig) != (1, 2, DEFAULT_MODEL, False)
        real = not emulated and not shaped and real_cards()
        if not (real or emulated or shaped):
            print("No NVIDIA driver answers on this machine, so the cards are emulated.", flush=True)
        spec = uniform(nodes, cards, model, mig=mig, control_plane=control_plane, port=port, pod_network=pod_network,
                       bare=bare, real=real, asked=not ctx.given.keys().isdisjoint(SHAPE))  # fmt: skip
    raise SystemExit(asyncio.run(_foreground(spec, data)))


def _of_file(config: Path, ctx: flags.Context) -> ClusterSpec:
    """A cluster file, and what the command line says besides. Raises BadInput for what the file alone can say."""
    given = ctx.given
    if shape := next((name for name in SHAPE if name in given), ""):
        raise BadInput(f"--{shape}: with --config the nodes stand in {config}; leave it out")
    return overruled(load(config), {name: given[name] for name in OVERRULING & given.keys()})


def real_cards() -> bool:
    """Are there real NVIDIA cards on this machine? Asked in a process of its own, so that no driver stays loaded."""
    question = "import pynvml; pynvml.nvmlInit(); raise SystemExit(pynvml.nvmlDeviceGetCount() == 0)"
    environ = {k: v for k, v in os.environ.items() if k != variables.MACHINE}
    try:
        return subprocess.run([sys.executable, "-c", question], capture_output=True, env=environ, timeout=60).returncode == 0
    except subprocess.TimeoutExpired as error:  # an unhealthy card may hang its driver
        raise Unavailable("the NVIDIA driver does not answer; with --emulated the cluster does without it") from error


def _check(data: DataDir) -> int:
    from pumice_lab.apiserver.disk import inspect

    problems = inspect(data.database)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{data.database}: nothing is wrong" if data.database.is_file() else f"{data.root}: no cluster has been here")
    return 1 if problems else 0


async def _foreground(spec: ClusterSpec, data: DataDir) -> int:
    # A child forked for an explanation never speaks gRPC; its fork handlers would only say on the terminal that they did nothing.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    gc.disable()  # nothing of what is imported is ever garbage, and to look through it takes a tenth of the start
    from pumice.apps.service.stopping import told_to_stop
    from pumice.cli.daemon import log_to
    from pumice_lab.up import Cluster

    gc.freeze()
    gc.enable()
    stop = told_to_stop()
    log_to()
    began = time.monotonic()
    with data.hold():
        log_to(data.logs / "up.log")  # the terminal is for people
        cluster = Cluster(spec, data)
        cluster.facts["again"] = shlex.join(["pumice", *(word for word in sys.argv[1:] if word not in ("-d", "--detach"))])
        try:
            await cluster.start(stop)
            problem = await asyncio.to_thread(_settled_problem, cluster.facts)
            print(welcome(cluster.facts, data, time.monotonic() - began, problem), flush=True)
            await stop.wait()
        finally:
            await cluster.stop()
    return 0


def _settled_problem(facts: dict[str, object]) -> str:
    """Return the scheduler's own problem once it has listed the cluster, for which it needs a moment."""
    from pumice_lab.datadir import scheduler_problem

    deadline = time.monotonic() + SETTLING_SECONDS
    while "capacities" in (problem := scheduler_problem(facts)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return problem


def welcome(facts: dict[str, object], data: DataDir, seconds: float, problem: str = "") -> str:
    if "scheduler" in facts:
        what_to_try = [
            ("kubectl apply -f examples/vgpu-user-guide/hami-pod.yaml", "3000 MiB and half of one card"),
            (f"curl http://{facts['scheduler']}/metrics", "who holds what"),
        ]
    else:
        what_to_try = [("kubectl create -f deploy/manifests/volcano.yml,deploy/manifests/volcano-vgpu-device-plugin.yml", "")]
    what_to_try.append((f"pumice status{data_dir_option(data)}", "what runs, and who is on which card"))
    if "web" in facts:
        from pumice.cli.page_link import address_with_token

        what_to_try.append((f"the same in a browser: {address_with_token(data.root, str(facts['web']))}", ""))
    longest = max(len(line) for line, words in what_to_try if words)
    return "\n".join((
        f"The cluster is ready ({seconds:.1f} s): {facts['summary']}",
        *([f"  but the scheduler: {problem}"] if " configuration" in problem else []),
        *([f"  {facts['pod_network']}"] if "pod_network" in facts else []),
        f"  export KUBECONFIG={data.kubeconfig}",
        "  kubectl get nodes -o wide",
        *(f"  {line:<{longest}}   # {words}" if words else f"  {line}" for line, words in what_to_try),
        f"{STOP}pumice down{data_dir_option(data)}",
    ))  # fmt: skip


def data_dir_option(data: DataDir) -> str:
    """Return the option that names this data dir; nothing for the default one."""
    return "" if data.root == default_data_dir().expanduser().absolute() else f" --data-dir {data.root}"


def _detached(data: DataDir, arguments: list[str]) -> None:
    """Start ``pumice up`` in a session of its own and wait until it says ready, or hand on its one line of error."""
    try:
        data.logs.mkdir(parents=True, exist_ok=True)
        # Without a name, for another that starts has its own. What goes wrong further on is no fault of the folder's.
        out = tempfile.TemporaryFile(dir=data.logs)  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"data dir {data.root}: {error.strerror}; name another with --data-dir") from error
    child = subprocess.Popen([sys.executable, "-m", "pumice", *_as_given(arguments)], stdin=subprocess.DEVNULL,
                             stdout=out, stderr=out, start_new_session=True)  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            text = os.pread(out.fileno(), MOST_SAID, 0).decode(errors="replace")
            if "The cluster is ready" in text and "pumice down" in text:
                print(text.strip().replace(STOP, "Stop it with: "))
                return
            if child.poll() is not None:
                raise _Said(text.strip().splitlines()[-1].removeprefix("pumice: ") if text.strip() else "pumice up ended at once")
            time.sleep(0.02)
        child.terminate()
        raise BadInput(f"the cluster was not ready within {START_SECONDS:.0f} s; its log is {data.logs / 'up.log'}")
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    finally:
        out.close()


class _Said(PumiceError):
    """The last line of the background process that has ended."""


def _as_given(arguments: list[str]) -> list[str]:
    return arguments if arguments[:1] == ["up"] else ["up", *arguments]
