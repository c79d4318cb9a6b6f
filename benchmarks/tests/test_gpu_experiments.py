"""The experiments for a real card, as far as they can be looked at without one: statistics, plots, kernels, and each of them
for a moment on the emulated machine."""

from __future__ import annotations

import re
import signal
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks.native import gpu
from benchmarks.native.experiments import cuda, kernels, page, plot, rig, roles_memory, shares
from benchmarks.native.experiments.catalogue import EXPERIMENTS
from kit.native_build import MACHINE
from kit.vgpu_kit import build

from pumice.adapters.load import SPIN

SOURCES = Path(cuda.__file__).parent
# Predefined identifiers of PTX that these kernels use; a register of a program may bear none of those names.
SPECIAL = {"tid", "ntid", "ctaid", "nctaid", "globaltimer", "clock64"}
PREDEFINED = {
    *SPECIAL,
    "clock",
    "clock_hi",
    "laneid",
    "warpid",
    "nwarpid",
    "smid",
    "nsmid",
    "gridid",
    "globaltimer_lo",
    "pm0",
}


def test_every_experiment_of_the_programme_is_there_in_order() -> None:
    assert list(EXPERIMENTS) == [f"E{number}" for number in range(16)]


@pytest.mark.parametrize("text", [kernels.CHAIN, kernels.READ, SPIN.decode()], ids=["chain", "read", "burn"])
def test_a_kernel_uses_the_registers_that_it_declares(text: str) -> None:
    declared = {name for line in re.findall(r"\.reg [^;]+;", text) for name in re.findall(r"%(\w+)", line)}
    body = re.sub(r"//.*|\.reg [^;]+;", "", text)
    used = {name.partition(".")[0] for name in re.findall(r"%([\w.]+)", body)}
    assert not declared & PREDEFINED
    assert used - SPECIAL == declared
    parameters = set(re.findall(r"\.param \.u64 (\w+)", text))
    assert set(re.findall(r"\[([a-z]\w*)\]", body)) <= parameters
    labels = set(re.findall(r"^(\w+):", text, re.M))
    assert set(re.findall(r"bra (\w+);", text)) == labels
    assert text.count("{\n") == 1
    assert text.rstrip("\0 \n").endswith("}")


def test_every_driver_call_is_declared_once_and_known_to_the_emulated_driver() -> None:
    known = set(
        re.findall(r"^SYMBOL\(\w+, \d+, \d, (\w+)\)", (MACHINE / "src/cuda/symbols.def").read_text(), re.M)
    )
    assert set(cuda.PROTOTYPES) <= known
    called = {
        name
        for path in SOURCES.glob("*.py")
        for name in re.findall(r'(?:cuda|self|_cuda|self\._cuda)(?:\.code|\.function)?\(\s*"(cu\w+)"', path.read_text())
    }
    assert called <= set(cuda.PROTOTYPES)
    assert len(called) > 30


def test_rates_are_work_over_time() -> None:
    run = {"window_s": 0.05, "windows": [0] * 20 + [25_000_000] * 40}
    assert shares.rate(run, 1.0) == pytest.approx(0.5)
    assert shares.rate(run, 0.0, 1.0) == 0.0
    assert shares.seconds(run, 1.0) == pytest.approx([0.5, 0.5])


def test_the_time_that_kernels_cover_counts_overlap_once() -> None:
    assert shares.union_ns([(0, 10), (5, 20), (30, 40), (32, 35)]) == 30
    assert shares.union_ns([]) == 0


def test_differences_come_with_an_interval() -> None:
    middle, low, high = shares.interval([(11.0, 1.0), (12.0, 2.0), (10.5, 0.0), (9.0, -0.5)])
    assert low <= middle <= high
    assert middle == pytest.approx(10.0, abs=0.5)


def test_a_clock_that_moved_spoils_a_comparison() -> None:
    assert shares.drifted([1980, 1980, 1900])
    assert not shares.drifted([1980, 1965, 0])
    assert not shares.drifted([])


def test_fairness_and_quantiles() -> None:
    assert shares.jain([1, 1, 1]) == pytest.approx(1)
    assert shares.jain([3, 0, 0]) == pytest.approx(1 / 3)
    assert shares.quantile(list(range(100)), 0.99) == 99


def test_plots_are_well_formed_whatever_the_names_and_numbers() -> None:
    for picture in (
        plot.lines("a <b>", "x & y", "%", {"one <": [(0, 1), (1, 2)], "two": [(0, 0)]}, goal=1.5),
        plot.lines("nothing", "x", "y", {}),
        plot.bars("bars", "ns", {"up": 3.0, "down & out": -1.0}, goal=2.0),
        plot.bars("none", "ns", {}),
    ):
        assert ElementTree.fromstring(picture).tag.endswith("svg")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> rig.Rig:
    build()
    if rig.real_card():
        pytest.skip("a real card is here: the experiments run on that")
    return rig.open_rig(tmp_path_factory.mktemp("rig"), quick=True)


@pytest.mark.parametrize("role", ["context", "pools", "mapping", "start"])
def test_a_worker_answers_what_it_is_asked(emulated: rig.Rig, role: str) -> None:
    assert emulated.run(role)


@pytest.mark.parametrize("way", roles_memory.WAYS)
def test_a_container_is_filled_to_its_limit_and_no_further(emulated: rig.Rig, way: str) -> None:
    container = emulated.container(CUDA_DEVICE_MEMORY_LIMIT="2g")
    reported = emulated.run("fill", container, way=way, block=256 << 20)
    slack = (
        reported["granule"] - 1 if "pool" not in way and "stream" not in way else 32 << 20
    )  # a pool grows by such pieces
    assert 0 <= reported["free"] - reported["granted"] <= slack
    assert reported["code"] == reported["wanted_code"]


@pytest.mark.parametrize("shape", ["async", "sync", "graph", "cooperative", "lognormal"])
def test_every_shape_of_work_is_counted(emulated: rig.Rig, shape: str) -> None:
    run = emulated.run("busy", kernel_ns=200_000, seconds=0.3, shape=shape, nodes=5 if shape == "graph" else 1)
    assert 0.3 < shares.rate(run, 0.1) < 1.5  # another process may have the processor


def test_a_result_says_why_it_was_not_run(emulated: rig.Rig, tmp_path: Path) -> None:
    result = gpu.run("E10", emulated, 60)
    assert "emulated machine" in result["not run"]
    assert result["device"].endswith("not a GPU")
    gpu.write(result, tmp_path)
    assert (tmp_path / "E10.json").exists()


def test_what_the_time_does_not_reach_is_told_on_the_page(emulated: rig.Rig, tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, gpu.time_is_over)
    result = gpu.run("E13", emulated, 0.01)
    gpu.write(result, tmp_path)
    text = page.render(emulated.device, [result], {"kernel": "6.1"}, 0.1)
    assert "0 of 0 promises hold; 1 experiments were not run." in text
    assert "Not run: the time for all of them was over (--minutes)." in text
    assert "This is not a GPU" in text


def test_the_witness_sees_no_byte_above_the_limit_and_the_page_says_so(emulated: rig.Rig, tmp_path: Path) -> None:
    result = gpu.run("E13", emulated, 60)
    gpu.write(result, tmp_path)
    assert [(goal["what"], goal["value"]) for goal in result["goals"]] == [
        ("witness: bytes above the limit", 0),
        ("the machine's own count: bytes above the limit", 0),
    ]
    assert result["figures"]["most in use, bytes"] > result["figures"]["limit, bytes"] * 0.9
    assert "| witness: bytes above the limit | 0 bytes | <= 0 | yes |" in page.render(emulated.device, [result], {}, 1)


def test_captures_are_tried_and_their_plot_and_figures_written(emulated: rig.Rig, tmp_path: Path) -> None:
    result = gpu.run("E12", emulated, 60)
    assert "ended early" not in result
    assert [goal["met"] for goal in result["goals"]] == [True]
    gpu.print_table([result])
