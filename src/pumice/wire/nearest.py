"""The nearest right word to one that means nothing."""

from __future__ import annotations

from typing import Any


def nearest(word: str, known: Any) -> str:
    """``; did you mean 'x'?`` when something known is near, else nothing."""
    found = nearest_word(word, known)
    return f"; did you mean {found!r}?" if found else ""


def nearest_word(word: str, known: Any) -> str:
    """Return the nearest known word; empty where none is near."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    folded = [k for k in known if k.lower() == word.lower()] or close
    return folded[0] if folded else ""
