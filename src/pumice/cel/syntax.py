"""Expressions as trees."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from lark import Lark, Tree
from lark.exceptions import LarkError, UnexpectedInput

from pumice.cel.values import CelError

LONGEST: Final = 10 << 10
"""Characters of an expression."""
ALL_TOGETHER: Final = 64 << 10
"""Characters of the expressions of one object: reading so many takes a second."""
DEEPEST: Final = 128
"""Nodes inside one another."""
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)


@cache
def _parser() -> Lark:
    grammar = files("pumice.cel").joinpath("cel.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=False)


@lru_cache(maxsize=4)
def parse(text: str) -> Tree[Any]:
    """Raises CelError with the place of what is wrong. The last ones are kept: who compiles an expression has it checked, too."""
    if len(text) > LONGEST:
        raise CelError(f"the expression has {len(text)} characters; at most {LONGEST} are read")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        near = problem.get_context(text, 20).split("\n")[0] if problem.pos_in_stream is not None else ""
        place = f"<input>:{problem.line}:{problem.column}" if problem.line > 0 else "<input>"
        raise CelError(f"ERROR: {place}: Syntax error: unexpected input near {near!r}") from None
    except LarkError as problem:
        raise CelError(f"Syntax error: {problem}") from None
    _bound(tree)
    return tree


def _bound(tree: Tree[Any]) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise CelError(f"the expression is nested more than {DEEPEST} deep")
        level = [child for node in level for child in node.children if isinstance(child, Tree)]


def text_of(token: str) -> str:
    """A string literal's value."""
    raw = token[0] in "rR"
    body = token[1:] if raw else token
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    return body if raw else _ESCAPE.sub(lambda found: _escaped(found[1]), body)


def bytes_of(token: str) -> bytes:
    raw = token[:2].lower() in ("br", "rb")
    body = token[2 if raw else 1 :]
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if raw:
        return body.encode()
    parts = _ESCAPE.split(body)  # text and escapes by turns
    return b"".join(part.encode() if place % 2 == 0 else _byte(part) for place, part in enumerate(parts))


def _byte(code: str) -> bytes:
    """An escape of a byte literal: a number is one byte."""
    if code[0] in "xX":
        return bytes([int(code[1:], 16)])
    if len(code) == 3:
        return bytes([int(code, 8)])
    if code[0] in "uU":
        raise CelError(f"\\{code} is no byte")
    return _escaped(code).encode()


def _escaped(code: str) -> str:
    if code[0] in "xXuU":
        number = int(code[1:], 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise CelError(f"\\{code} is no character")
        return chr(number)
    if len(code) == 3:
        return chr(int(code, 8))
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code in "\\?\"'`":
        return code
    raise CelError(f"\\{code} is no escape")
