"""Whatever a model file or a state file holds, the answer is a value or one sentence, never a traceback."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.model.errors import BadInput
from pumice_lab.machine import MachineError, MachineModel, layout, load_model, open_machine

_LINES = [
    "machine: n1",
    "time: virtual",
    "cards:",
    "- preset: A100-SXM4-40GB",
    "  count: 2",
    "  memory: 40Gi",
    "  nvlink: [1, 0]",
    "  mig: {mode: true, table: a30}",
    "- L4",
    "- {name: X, memory: 1, sms: 1, compute: '8.0'}",
    "faults:",
    "- {call: cuMemAlloc, error: 2, first: 1}",
    "driver: 535",
    "cuda: 12.2",
    "[[cards]]",
    'preset = "L4"',
    "numa = -1",
    "[cards.mig]",
    "mode = true",
]
_words = st.sampled_from(
    ["-1", "1e99", "null", "true", "[]", "{}", "'", "\t", ":", "=", "&a", "*a", "!!python/x", "\x00", "2026-01-01"]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Lines of good models in any order, some with a piece replaced by something odd."""
    lines = draw(st.lists(st.sampled_from(_LINES), max_size=14))
    for index in draw(st.lists(st.integers(0, max(0, len(lines) - 1)), max_size=4)) if lines else []:
        line = lines[index]
        at = draw(st.integers(0, len(line)))
        lines[index] = line[:at] + draw(_words | st.text(max_size=4)) + line[at + draw(st.integers(0, 6)) :]
    return "\n".join(lines) + "\n"


@given(documents())
@settings(max_examples=500, deadline=None)
def test_any_document_is_a_model_or_one_line_of_reproach(text: str) -> None:
    answer: MachineModel | str
    try:
        answer = load_model(text)
    except BadInput as error:
        answer = str(error)
    assert isinstance(answer, MachineModel) or (answer.startswith("<model>:") and len(answer.splitlines()) == 1)


@given(head=st.binary(max_size=64), at=st.integers(0, 40), length=st.sampled_from([0, 10, 24, 4096]))
@settings(max_examples=100, deadline=None)
def test_any_short_state_file_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, head: bytes, at: int, length: int
) -> None:
    directory = tmp_path_factory.mktemp("state")
    good = layout.MAGIC.to_bytes(8, "little") + layout.VERSION.to_bytes(4, "little") + bytes(4) + bytes(4080)
    (directory / "state").write_bytes((good[:at] + head + good[at + len(head) :])[:length])
    with pytest.raises(MachineError) as refused:
        open_machine(directory)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "reproach"),
    [
        ("cards: &a [*a]\n", "<model>:1: cards[0]: holds itself"),
        ("a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n", "<model>:1: a: unknown key; known:"),
        ("? [a]\n: b\n", "<model>:1: has a key that is no word"),
        ("cards: [L4]\ncards: [L4]\n", "<model>:2: cards: stands twice"),
        ("cards: " + "[" * 1200, "<model>:1: nested too deeply"),
        ("cards = " + "[" * 1200, "<model>:1: nested too deeply"),
        ("\x07", "<model>:1: not YAML: unacceptable character"),
    ],
)
def test_odd_yaml_is_refused_at_its_line(text: str, reproach: str) -> None:
    with pytest.raises(BadInput) as refused:
        load_model(text)
    assert str(refused.value).startswith(reproach)


def test_a_text_that_grows_without_end_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 9)]
    with pytest.raises(match="more than 200000 values"):
        load_model("\n".join(lines) + "\n")
