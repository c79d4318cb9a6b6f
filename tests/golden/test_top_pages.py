"""The pages of the screen of ``pumice top`` in terminals of several sizes: lines are as wide as the terminal, no figure is cut.

`python -m tests.golden.test_top_pages` writes the files anew; read their diff before you keep it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.top_picture import BEGAN, CARDS, POD, history, sample
from tests.golden.test_screens import queues

from pumice.cli.screen.page import NARROWEST, ClusterSample, Page, cluster_page, machine_page, too_small
from pumice.cli.screen.samples import History, Part, Program, Sample
from pumice.cli.screen.view import View
from pumice.devices.device_type import CardRow, CardTenant

HERE = Path(__file__).parent / "screens"
SIZES = ((40, 20), (80, 24), (200, 60))
SECONDS = 300
ROWS = [
    CardRow("node-1", 0, "GPU-0", "NVIDIA-Tesla-V100", 32768, True, 24000, 80, [CardTenant("research/trainer-0", 24000, 80)]),
    CardRow("node-1", 1, "GPU-1", "NVIDIA-Tesla-V100", 32768),
]
VIEWS = {
    "card": View(selected=f"card 1 m r2 {sample(0).cards[1].uuid}"),
    "user by memory": View(tree="user", sort="memory"),
    "pod, filtered": View(tree="pod", filter="anna"),
    "none by cores": View(tree="none", sort="cores", reverse=True),
}


def page(view: View, width: int, height: int) -> Page:
    return too_small(width, height) or machine_page(
        sample(SECONDS - 1), history(SECONDS), view, {POD: "research/serve-0"}, width, height
    )


def pods(width: int, height: int) -> Page:
    return cluster_page(ClusterSample(BEGAN, ROWS), View("pods"), width, height, BEGAN + 3)


def of_queues(width: int, height: int) -> Page:
    trouble = "the cluster does not answer"
    return cluster_page(ClusterSample(BEGAN, queues=queues()), View("queues"), width, height, BEGAN + 70, trouble)


def text(page: Page) -> list[str]:
    return [line.plain.rstrip() for line in page.lines]


def whole(name: str) -> str:
    lines = []
    if name == "top_machine":
        for title, view in VIEWS.items():
            for width, height in SIZES if title == "card" else SIZES[1:2]:
                lines += [f"== {title}, {width} x {height}", *text(page(view, width, height))]
        lines += ["== 20 x 24", *text(page(View(), 20, 24))]
    else:
        for width, height in SIZES:
            lines += [f"== {width} x {height}", *text((pods if name == "top_pods" else of_queues)(width, min(height, 24)))]
    return "\n".join(lines) + "\n"


NAMES = ("top_machine", "top_pods", "top_cluster_queues")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_it_was(name: str) -> None:
    assert whole(name) == (HERE / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", range(NARROWEST, 201, 7))
def test_in_every_terminal_a_line_is_as_wide_as_it_and_the_figures_of_a_program_are_whole(width: int) -> None:
    for view in VIEWS.values():
        for height in (10, 17, 24, 60):
            shown = page(view, width, height)
            assert len(shown.lines) <= height
            assert {line.cell_len for line in shown.lines} == {width}
            for line in text(shown):
                for word in line.split():
                    if "/" in word and word[0].isdigit() and "…" not in word:
                        assert re.fullmatch(r"\d+/\d+", word), f"{width} x {height}: {line!r}"


@pytest.mark.parametrize("size", [(1, 1), (20, 24), (39, 60), (200, 9), (40, 2)])
def test_a_terminal_that_is_too_small_is_told_what_is_needed(size: tuple[int, int]) -> None:
    shown = page(View(), *size)
    assert len(shown.lines) <= size[1]
    assert all(line.cell_len == size[0] for line in shown.lines)
    if size == (20, 24):
        assert " ".join(" ".join(text(shown)).split()) == (
            "pumice top needs a terminal of 40 columns and 10 lines. This one has 20 and 24. "
            "q ends; pumice top --once needs none.")


def test_a_share_that_no_process_has_stands_without_a_pid() -> None:
    """As one with a name stands before its first container, in `pumice ps` too."""
    named = Program("m train", "train", 0, "anna", (Part(CARDS[0], 0, 0, None, 3072),), "pumice share create train", started=1)
    there = Sample(BEGAN, sample(0).cards, (named,))
    for width in (40, 80, 200):
        (row,) = (line for line in text(machine_page(there, History(), View(), {}, width, 24)) if " train " in line)
        assert re.match(r"  train +- ", row), row


if __name__ == "__main__":
    for each in NAMES:
        (HERE / f"{each}.txt").write_text(whole(each))
