"""The table of cards and pods of a cluster: in no terminal is it hidden who is on a card."""

from __future__ import annotations

import pytest
from kit.device_world import A100, card, limits, pod_of, vgpu_node
from rich.console import Console

from pumice.cli.tables import cards_table
from pumice.devices.device_type import CardRow, CardTenant
from pumice.devices.registry import all_card_rows
from pumice.wire import names

HOLDERS = [CardTenant("default/hami-pod", 3000, 50), CardTenant("research/trainer-0", 8000, 25)]
ROWS = [
    CardRow("node-0", 0, "GPU-0", "NVIDIA-Tesla V100-SXM2-32GB", 32768, True, 11000, 75, HOLDERS),
    CardRow("node-0", 1, "GPU-1", "NVIDIA-Tesla V100-SXM2-32GB", 32768),
]


def printed(rows: list[CardRow], width: int) -> str:
    console = Console(width=width or 500, force_terminal=False, highlight=False)
    with console.capture() as shown:
        console.print(cards_table(rows, width))
    return shown.get()


@pytest.mark.parametrize("width", [45, 60, 70, 80, 100, 120, 200])
@pytest.mark.parametrize("node", ["node-0", "ip-10-0-12-345.eu-central-1.compute.internal"])
def test_every_pod_is_readable_in_a_terminal_of_any_width(width: int, node: str) -> None:
    rows = [CardRow(node, r.index, r.uuid, r.type, r.total, True, r.memory, r.cores, r.holders) for r in ROWS]
    reported = printed(rows, width)
    assert max(map(len, reported.splitlines())) <= width
    begins = next(line.index("Pods") for line in reported.splitlines() if "Pods" in line)
    pods = "".join(line[begins:].replace(" ", "") for line in reported.splitlines())
    for holder in HOLDERS:
        assert str(holder).replace(" ", "") in pods
    assert "11000/32768" in reported
    assert "free" in pods


def test_a_table_that_goes_into_a_pipe_is_as_wide_as_it_needs() -> None:
    lines = printed(ROWS, 0).splitlines()
    assert any(line.rstrip().endswith("default/hami-pod (3000 MiB, 50 %)") for line in lines)
    assert "Tesla V100-SXM2-32GB" in lines[3]


def test_a_pod_on_a_slice_is_shown_with_the_slice_and_not_with_what_it_asked_for() -> None:
    node = vgpu_node("n1", card("GPU-0", 40960, 7, A100, mode="mig"))
    pod = pod_of("a", limits(1, 3000, 0), annotations={names.VGPU_IDS: "GPU-0[group1-0],NVIDIA,3000,0:", names.VGPU_NODE: "n1"})
    pod.spec.node_name, pod.status.phase = "n1", "Running"
    (row,) = all_card_rows([node], [pod])
    assert (row.memory, [holder.memory for holder in row.holders]) == (5120, [5120])
