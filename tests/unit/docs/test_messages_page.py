"""The page of messages is what its table makes; the programs say each message of it, and none that it lacks without a reason."""

from __future__ import annotations

import re
from functools import cache

import pytest
from kit import messages

ROWS = [row["text"] for part in messages.PARTS for row in part["row"]]


@cache
def sources() -> str:
    """All sources as one text, with strings that stand beside each other put together."""
    globs = ("src/**/*.py", "lab/src/**/*.py", "native/vgpu/**/*.[ch]")
    places = [path for one in globs for path in messages.ROOT.glob(one)]
    text = "\n".join(path.read_text("utf-8") for path in places)
    return re.sub(r'"\s*f?"', "", text)


def test_the_page_is_what_the_table_makes() -> None:
    """``python -m kit.messages``"""
    assert messages.PAGE.read_text("utf-8") == messages.markdown()


@pytest.mark.parametrize("text", ROWS)
def test_somebody_says_it(text: str) -> None:
    assert [piece for piece in messages.pieces(text) if piece not in sources()] == []


def test_each_message_stands_there_once() -> None:
    assert len(ROWS) == len(set(ROWS)) >= 40


def test_each_message_has_its_row_or_is_left_out_for_a_reason() -> None:
    """``python -m kit.messages --missing``; a new one gets its row in ``kit/messages.toml``, or its place in a ``left_out``."""
    assert messages.missing() == []


def test_nothing_is_left_out_that_nobody_says() -> None:
    texts = [text for _, text in messages.said()]
    assert len(texts) > 300
    assert [pattern.pattern for pattern in messages.LEFT_OUT if not any(map(pattern.fullmatch, texts))] == []


def test_a_new_message_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "said", lambda: iter([("new.py:1", "the moon is in the way of …")]))
    assert messages.missing() == ["new.py:1: the moon is in the way of …"]
