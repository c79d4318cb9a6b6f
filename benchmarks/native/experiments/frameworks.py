"""E10: what people run: a small training step in each framework, with and without the library."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import NotRun, Report, Rig
from benchmarks.native.experiments.shares import interval

PAIRS = 7
LIMITS = {"CUDA_DEVICE_MEMORY_LIMIT": "16g"}

TRAIN = """
import json, sys, time, torch
mode = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
data = torch.randn(8, 128, 256, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=False)
    loss = forward(data).square().mean()
    loss.backward()
    optimizer.step()
forward = torch.compile(model) if mode == "compile" else model
if mode == "graph":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    run = graph.replay
else:
    run = step
for _ in range(10):
    run()
torch.cuda.synchronize()
begun = time.perf_counter()
for _ in range(100):
    run()
torch.cuda.synchronize()
print(json.dumps(1000 * (time.perf_counter() - begun) / 100))
"""
PROFILE = """
import json, torch
before, total = torch.cuda.mem_get_info()
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
inside, _ = torch.cuda.mem_get_info()
del held
torch.cuda.empty_cache()
after, _ = torch.cuda.mem_get_info()
assert inside <= before - (1 << 30), (before, inside)
assert inside < after <= before, (inside, after, before)
print(json.dumps(0.0))
"""
TRITON = """
import json, time, torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, size: tl.constexpr):
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
x = torch.randn(1 << 20, device="cuda"); y = torch.randn_like(x); out = torch.empty_like(x)
run = lambda: add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), size=1024)
run(); torch.cuda.synchronize(); assert torch.allclose(out, x + y)
begun = time.perf_counter()
for _ in range(1000): run()
torch.cuda.synchronize()
print(json.dumps((time.perf_counter() - begun)))
"""
JAX = """
import json, os, time
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
import jax, jax.numpy as jnp
step = jax.jit(jax.grad(lambda w, x: jnp.square(x @ w).mean()))
w, x = jnp.ones((1024, 1024)), jnp.ones((512, 1024))
step(w, x).block_until_ready()
begun = time.perf_counter()
for _ in range(100): w = w - 1e-3 * step(w, x)
w.block_until_ready()
assert jax.devices()[0].platform == "gpu"
print(json.dumps(10 * (time.perf_counter() - begun)))
"""
CUPY = """
import json, sys, time, cupy
if sys.argv[1] == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
x = cupy.ones((2048, 2048), dtype=cupy.float32)
run = lambda: (x @ x).sum()
run(); cupy.cuda.Device().synchronize()
begun = time.perf_counter()
for _ in range(100): run()
cupy.cuda.Device().synchronize()
print(json.dumps(10 * (time.perf_counter() - begun)))
"""
NCCL = """
import json, os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
dist.init_process_group("nccl", rank=0, world_size=1)
x = torch.ones(1 << 20, device="cuda"); dist.all_reduce(x); torch.cuda.synchronize()
assert x.sum().item() == 1 << 20
dist.destroy_process_group()
print(json.dumps(0.0))
"""
NUMBA = """
import json, numpy, time
from numba import cuda
@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size: x[i] *= 2
x = cuda.to_device(numpy.ones(1 << 20, dtype=numpy.float32))
double[4096, 256](x); cuda.synchronize()
begun = time.perf_counter()
for _ in range(1000): double[4096, 256](x)
cuda.synchronize()
print(json.dumps(time.perf_counter() - begun))
"""
PROGRAMS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {  # the modules needed, the program, its words
    "torch, eager": (("torch",), TRAIN, ("eager",)),
    "torch, compiled": (("torch", "triton"), TRAIN, ("compile",)),
    "torch, graph": (("torch",), TRAIN, ("graph",)),
    "torch, memory profile": (("torch",), PROFILE, ()),
    "torch, NCCL of one rank": (("torch",), NCCL, ()),
    "triton": (("torch", "triton"), TRITON, ()),
    "jax": (("jax",), JAX, ()),
    "cupy": (("cupy",), CUPY, ("default",)),
    "cupy, async pool": (("cupy",), CUPY, ("async",)),
    "numba": (("numba",), NUMBA, ()),
}


def frameworks(rig: Rig) -> Report:
    if rig.emulated:
        raise NotRun("frameworks bring machine code of their own, which the emulated machine does not run")
    report, added = Report(), {}
    for name, (modules, program, words) in PROGRAMS.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        if absent:
            report.not_run[name] = f"no {', no '.join(absent)} here"
            continue
        failed = _fails(rig, program, words)
        report.goal(f"{name}: failures under the library", float(bool(failed)))
        if failed:
            report.figures[f"{name}: what failed"] = failed
            continue
        pairs = [(_ms(rig.container(**LIMITS).environment, program, words), _ms(rig.environment(), program, words))
                 for _ in range(2 if rig.quick else PAIRS)]  # fmt: skip
        native = sum(without for _, without in pairs) / len(pairs)
        if native > 0:
            middle, low, high = interval(pairs)
            added[name] = 100 * middle / native
            reported = {"ms": round(native, 4), "added, %": round(added[name], 3)}
            report.figures[name] = {**reported, "95 %": [round(100 * low / native, 3), round(100 * high / native, 3)]}
            report.goal(f"{name}: added to a step", added[name])
    report.plots["added"] = plot.bars("time added to a step with a memory limit", "%", added, goal=0.3)
    if not added and not report.goals:
        raise NotRun("; ".join(sorted(set(report.not_run.values()))))
    return report


def _run(environment: Mapping[str, str], program: str, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=300, check=False)


def _fails(rig: Rig, program: str, words: tuple[str, ...]) -> str:
    """The last line of a failure under the library; empty when it passes, or when it fails without the library as well."""
    done = _run(rig.container(**LIMITS).environment, program, words)
    if done.returncode == 0 or _run(rig.environment(), program, words).returncode != 0:
        return ""
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"


def _ms(environment: Mapping[str, str], program: str, words: tuple[str, ...]) -> float:
    done = _run(environment, program, words)
    return float(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else float("nan")
