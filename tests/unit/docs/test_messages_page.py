"""The page of messages is what its table makes, and the programs say each message that stands on it."""

from __future__ import annotations

import re
from functools import cache

import pytest
from kit import messages

ROWS = [row["text"] for part in messages.PARTS for row in part["row"]]


@cache
def sources() -> str:
    """All sources as one text, with strings that stand beside each other put together."""
    places = [*messages.ROOT.glob("src/**/*.py"), *messages.ROOT.glob("native/vgpu/**/*.[ch]")]
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
