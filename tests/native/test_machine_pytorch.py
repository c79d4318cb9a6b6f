"""PyTorch on the emulated machine, as `pumice run` starts it. Kernels compute nothing, so no value is looked at."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.one_machine import MIB, OneMachine

pytestmark = pytest.mark.soak
LIMIT = 3000
ALLOCATORS = ["", "expandable_segments:True", "backend:cudaMallocAsync"]

FILLS = """
import json, subprocess, sys, time, torch
held, told = [], ""
try:
    while True:
        held.append(torch.empty(50 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    told = str(error)
count, total = len(held), torch.cuda.mem_get_info()[1] >> 20
shown = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
if "stay" in sys.argv:
    print("full", flush=True)
    time.sleep(100)
held = held[::2]
torch.cuda.empty_cache()
again = torch.empty(count * 20 << 20, dtype=torch.uint8, device="cuda").numel() >> 20
print(json.dumps({"held": count * 50, "told": told, "total": total, "again": again, "shown": shown}))
"""
WORKS = """
import json, torch
here, there = torch.cuda.Stream(), torch.cuda.Stream()
begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
weights = torch.nn.Parameter(torch.empty(1000, 1000, device="cuda"))
optimizer = torch.optim.Adam([weights], fused=True)
(torch.softmax(weights * 2, -1) + 1).sum().backward()
optimizer.step()
with torch.cuda.stream(here):
    begun.record()
    for _ in range(3):
        made = torch.zeros(1 << 20, device="cuda") + 1
    ended.record()
there.wait_event(ended)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=here):
    kept = made * 2
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
for _ in range(5):
    graph.replay()
pinned = torch.arange(10).pin_memory()
moved = pinned.to("cuda", non_blocking=True).cpu().tolist()
torch.cuda.memory._set_allocator_settings("garbage_collection_threshold:0.8")
print(json.dumps({
    "backend": torch.cuda.get_allocator_backend(), "ms": begun.elapsed_time(ended), "idle": here.query() and there.query(),
    "counts_graphs": "Async" not in torch.cuda.get_allocator_backend() or torch.__version__ > "2.15",
    "moved": moved, "most": torch.cuda.max_memory_allocated() >> 20, "shape": list(kept.shape),
}))
"""
FRACTION = """
import torch
torch.cuda.set_per_process_memory_fraction(0.5)
try:
    torch.empty(1600 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print(error)
"""
WORKS_ON = """
import torch
held = torch.empty(1 << 20, device="cuda")
held.add_(1)
torch.cuda.synchronize()
print("begun", flush=True)
while True:
    for _ in range(20):
        held.add_(1)
    torch.cuda.synchronize()
"""
PASSES = """
import json, torch, torch.multiprocessing
processes = torch.multiprocessing.get_context("fork")
there, back = processes.Queue(), processes.Queue()

def other():
    tensor = there.get()
    back.put((tensor[:4].cpu().tolist(), tensor.numel()))
    tensor[:4].copy_(torch.tensor([4., 3., 2., 1.]).cuda())
    event = there.get()
    late = not event.query()
    event.synchronize()
    back.put((late, event.query()))
    there.get()

program = processes.Process(target=other, daemon=True)
program.start()
tensor = torch.empty(50 << 18, device="cuda")
tensor[:4].copy_(torch.tensor([1., 2., 3., 4.]))
there.put(tensor)
told = list(back.get(timeout=60))
event = torch.cuda.Event(interprocess=True)
torch.cuda._sleep(10_000_000_000)
event.record()
there.put(event)
told += back.get(timeout=60)
there.put("done")
program.join()
print(json.dumps({"told": told, "changed": tensor[:4].cpu().tolist(), "ended": program.exitcode}))
"""
TWO_CARDS = """
import json, torch
moved = torch.arange(1000).to("cuda:0").to("cuda:1").cpu().tolist() == list(range(1000))
full = {}
for card in (0, 1):
    held = []
    try:
        while True:
            held.append(torch.empty(50 << 20, dtype=torch.uint8, device=f"cuda:{card}"))
    except torch.cuda.OutOfMemoryError as error:
        full[card] = str(error)
print(json.dumps({"moved": moved, "count": torch.cuda.device_count(), "full": full}))
"""
PROFILES = """
import torch
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as traced:
    torch.ones(1000, device="cuda").add_(1)
    torch.cuda.synchronize()
print("aten::add_" in {event.key for event in traced.key_averages()})
"""
RANK = """
import os, torch, torch.distributed
rank = int(os.environ["LOCAL_RANK"])
torch.distributed.init_process_group("gloo")
torch.cuda.set_device(rank)
held = torch.empty(2000 << 20, dtype=torch.uint8, device="cuda")
torch.distributed.barrier()
try:
    torch.empty(1000 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print(f"rank {rank} of {torch.distributed.get_world_size()}: {torch.cuda.mem_get_info()[1] >> 20} MiB", flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
REFUSED = """
import torch
ones = torch.ones(4, 4, device="cuda")
for work in (lambda: ones @ ones, lambda: torch.nn.functional.conv2d(ones[None, None], ones[None, None]),
             lambda: torch.fft.fft(ones), lambda: torch.linalg.inv(ones)):
    try:
        work()
        print("done")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


@pytest.fixture
def one_card(tmp_path: Path) -> Iterator[OneMachine]:
    machine = OneMachine(tmp_path / "machine", "1xA100-SXM4-40GB")
    machine.environment["PYTHONWARNINGS"] = "ignore"
    yield machine
    machine.close()


def _choose(machine: OneMachine, allocator: str) -> None:
    """Under its name of today and that of PyTorch before 2.9."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        machine.environment[name] = allocator


def _said(machine: OneMachine, torch_python: str, program: str) -> str:
    done = machine.run("--memory", str(LIMIT), "--", torch_python, "-c", program)
    if "Unrecognized CachingAllocator option" in done.stderr:
        pytest.skip("this PyTorch knows no expandable segments")
    assert done.returncode == 0, done.stderr
    return done.stdout


def _reported(machine: OneMachine, torch_python: str, program: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_said(machine, torch_python, program).splitlines()[-1])
    return found


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_loop_of_allocations_ends_at_the_limit_and_names_it(one_card: OneMachine, torch_python: str, allocator: str) -> None:
    _choose(one_card, allocator)
    reported = _reported(one_card, torch_python, FILLS)
    assert reported["total"] == LIMIT
    assert "2.93 GiB" in reported["told"]
    assert LIMIT - 600 < reported["held"] < LIMIT  # the context is the card's, not the loop's
    assert f"/   {LIMIT}MiB" in reported["shown"]
    assert reported["again"] > 0, "what was given back is there again"
    assert 0 < one_card.machine.peak(0) <= LIMIT * MIB


def test_each_rank_of_torchrun_has_the_share_of_its_own_card(tmp_path: Path, torch_python: str) -> None:
    """The recipe of docs/how-to/one-machine.md."""
    machine = OneMachine(tmp_path / "machine", "2xA100-SXM4-40GB")
    (tmp_path / "train.py").write_text(RANK)
    torchrun = [torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "train.py")]
    try:
        done = machine.run("--gpus", "2", "--memory", str(LIMIT), "--", *torchrun)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 2: {LIMIT} MiB" for rank in (0, 1)]
        assert all(2000 * MIB < machine.machine.peak(card) <= LIMIT * MIB for card in (0, 1))
    finally:
        machine.close()


def test_two_programs_share_a_card_and_each_is_shown_its_share(one_card: OneMachine, torch_python: str) -> None:
    programs = [one_card.start("--memory", str(LIMIT), "--", torch_python, "-c", FILLS, "stay") for _ in range(2)]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "full\n"
    held = [share.bytes for share in one_card.machine.witness().shares if share.bytes]
    assert len(held) == 2
    assert all((LIMIT - 100) * MIB < each <= LIMIT * MIB for each in held)
    assert one_card.machine.peak(0) <= 2 * LIMIT * MIB
    outside = subprocess.run([str(one_card.directory / "bin/nvidia-smi")], capture_output=True, text=True, check=True,
                             env=one_card.environment | {"PUMICE_MACHINE": str(one_card.directory)}).stdout  # fmt: skip
    assert all(f" {program.pid} " in outside for program in programs)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_streams_events_an_optimizer_and_a_graph_run(one_card: OneMachine, torch_python: str, allocator: str) -> None:
    _choose(one_card, allocator)
    reported = _reported(one_card, torch_python, WORKS)
    assert reported["backend"] == ("cudaMallocAsync" if "Async" in allocator else "native")
    assert reported["idle"] is True
    assert reported["ms"] > 0
    assert reported["moved"] == list(range(10)), "copies move bytes"
    assert reported["most"] > (100 if reported["counts_graphs"] else 20)
    assert reported["shape"] == [1 << 20]


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_a_tensor_and_an_event_go_from_process_to_process(one_card: OneMachine, torch_python: str, allocator: str) -> None:
    """The work before the event takes seven seconds, so it is not done when the other process gets it."""
    _choose(one_card, allocator)
    reported = _reported(one_card, torch_python, PASSES)
    assert reported["told"] == [[1, 2, 3, 4], 50 << 18, True, True]
    assert reported["changed"] == [4, 3, 2, 1]
    assert reported["ended"] == 0


def test_each_of_two_cards_has_its_limit(tmp_path: Path, torch_python: str) -> None:
    machine = OneMachine(tmp_path / "machine", "2xA100-SXM4-40GB")
    machine.environment["PYTHONWARNINGS"] = "ignore"
    done = machine.run("--gpus", "2", "--memory", "2000", "--", torch_python, "-c", TWO_CARDS)
    machine.close()
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert (reported["count"], reported["moved"]) == (2, True)
    assert all(f"GPU {card}" in text and "1.95 GiB" in text for card, text in reported["full"].items())


def test_a_fraction_is_of_the_limit(one_card: OneMachine, torch_python: str) -> None:
    assert "1.46 GiB allowed" in _said(one_card, torch_python, FRACTION)


def test_its_kernels_keep_to_a_part_of_the_cards_time(one_card: OneMachine, torch_python: str) -> None:
    """Alone it would have a quarter: so many kernels of the machine's usual 5 us PyTorch starts in a second."""
    program = one_card.start("--memory", str(LIMIT), "--cores", "5", "--", torch_python, "-c", WORKS_ON)
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    assert 0 < one_card.busy_share(program.pid, 4.0) < 0.08


def test_the_profiler_traces_what_the_processor_does(one_card: OneMachine, torch_python: str) -> None:
    """It asks CUPTI for the card's part, which some of NVIDIA's end over."""
    assert _said(one_card, torch_python, PROFILES).splitlines()[-1] == "True"


def test_what_has_nvidias_runtime_inside_refuses_in_its_own_words(one_card: OneMachine, torch_python: str) -> None:
    said = _said(one_card, torch_python, REFUSED).splitlines()
    assert len(said) == 4
    for line, word in zip(said, ("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS", "CUFFT_", "CUSOLVER_STATUS"), strict=True):
        assert word in line
