"""Several streams under a core limit: kernels that can run side by side do, and what is paid for is the time in which any runs.

Two machines in virtual time: on one, kernels of different streams overlap fully, on the other each fills the card and they wait
for each other. The limit holds on both, and on the first the work done is the share of what the streams do natively.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from kit.vgpu_kit import Container, build

from pumice_lab import machine
from tests.native.conducting import busy, conduct

US, MS = 1_000, 1_000_000


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    build()
    folder = tmp_path_factory.mktemp("machines")
    model = machine.machine_of("A100-SXM4-40GB", virtual_time=True)
    for overlap in (False, True):
        machine.create(dataclasses.replace(model, overlap=overlap), folder / str(overlap))
    return {overlap: folder / str(overlap) for overlap in (False, True)}


@pytest.mark.parametrize("streams", [2, 4])
@pytest.mark.parametrize("limit", [30, 70])
@pytest.mark.parametrize("kernel_ns", [10 * US, 100 * US, MS, 10 * MS])
def test_streams_do_the_limits_share_of_what_they_do_natively(
    machines: dict[bool, Path], tmp_path: Path, kernel_ns: int, limit: int, streams: int
) -> None:
    (worker,) = conduct(machines[True], tmp_path, 4000, f"limit={limit},kernel={kernel_ns},streams={streams}")
    assert busy(worker, 1000, 3990) == pytest.approx(limit, abs=1.0)
    done = worker["launches"] * kernel_ns / (4000 * MS * streams)  # natively this is 1: every stream works all the time
    assert done >= 0.98 * limit / 100


@pytest.mark.parametrize("streams", [2, 4])
@pytest.mark.parametrize("limit", [30, 70])
@pytest.mark.parametrize("kernel_ns", [10 * US, 100 * US, MS, 10 * MS])
def test_streams_whose_kernels_fill_the_card_do_not_exceed_the_limit(
    machines: dict[bool, Path], tmp_path: Path, kernel_ns: int, limit: int, streams: int
) -> None:
    (worker,) = conduct(machines[False], tmp_path, 4000, f"limit={limit},kernel={kernel_ns},streams={streams}")
    assert busy(worker, 1000, 3990) == pytest.approx(limit, abs=1.0)


@pytest.mark.parametrize("limit", [30, 70])
@pytest.mark.parametrize("kernel_ns", [100 * US, 10 * MS])
def test_green_contexts_on_parts_of_a_card_do_the_limits_share_of_what_they_do_natively(
    machines: dict[bool, Path], tmp_path: Path, kernel_ns: int, limit: int
) -> None:
    """Kernels of one stream fill the card of this machine, and those of contexts that share no processor run side by side."""
    (worker,) = conduct(machines[False], tmp_path, 4000, f"limit={limit},kernel={kernel_ns},streams=4,shape=green")
    assert busy(worker, 1000, 3990) == pytest.approx(limit, abs=1.0)
    assert worker["launches"] * kernel_ns / (4000 * MS * 4) >= 0.98 * limit / 100


def test_a_process_of_many_streams_and_one_of_one_share_the_containers_budget(
    machines: dict[bool, Path], tmp_path: Path
) -> None:
    many, one = conduct(
        machines[True], tmp_path, 6000, "limit=40,kernel=1000000,streams=4", "limit=40,kernel=1000000,streams=1"
    )
    assert busy(many, 1000, 5990) + busy(one, 1000, 5990) == pytest.approx(40, abs=1.5)
    assert min(busy(many, 1000, 5990), busy(one, 1000, 5990)) > 8


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_processes_with_kernels_of_50_ms_share_one_budget_from_the_first_seconds(
    machines: dict[bool, Path], tmp_path: Path, processes: int
) -> None:
    """A round of four such kernels takes 500 ms at 40 %; a window of eight rounds tells shares to a tenth of themselves."""
    workers = conduct(machines[False], tmp_path, 5100, *["limit=40,kernel=50000000"] * processes)
    shares = [busy(worker, 1000, 5000) for worker in workers]
    assert (
        sum(busy(worker, 0, 1000) for worker in workers) <= 40 + 100 * 50 / 1000
    )  # at most a kernel above in the first second
    assert sum(shares) == pytest.approx(40, abs=1.5)
    assert sum(shares) ** 2 / (processes * sum(share * share for share in shares)) >= 0.98


def test_a_kernel_that_stays_on_the_card_costs_others_that_are_new_their_patience_once(
    machines: dict[bool, Path], tmp_path: Path
) -> None:
    """As kernels of collective communication do. Each new kind waited for the answer that did not come."""
    container = Container(machines[False], tmp_path, {"CUDA_DEVICE_SM_LIMIT": "50"})
    stays, *others = container.child("persistent.py", "12").json()
    assert stays == 0
    assert sum(took > 50 for took in others) <= 1, others
    assert sum(others) < 1000
