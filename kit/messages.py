"""The page of messages, docs/reference/errors.md, made of ``kit/messages.toml``: ``python -m kit.messages`` writes it.

``--missing`` lists the messages of the sources that have no row there, as the test does."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/errors.md"
DATA = tomllib.loads((Path(__file__).parent / "messages.toml").read_text("utf-8"))
PARTS = DATA["part"]
LEFT_OUT = [re.compile(pattern) for group in DATA["left_out"]
            for pattern in (*group.get("patterns", ()), *map(re.escape, group.get("texts", ())))]  # fmt: skip
"""Messages that need no row; each is a pattern of a whole message."""
ERRORS = frozenset({"BadInput", "Unavailable"})
"""The errors that a command or daemon says to a person as they are."""
HEAD = """\
# Messages

Look here for the words that you were shown. `…` stands for names and numbers. [By symptom](../how-to/by-symptom.md) has more
messages of pods that wait, and what to do if there is no message. `python -m kit.messages` makes this page.
"""


def markdown() -> str:
    lines = [HEAD]
    for part in PARTS:
        lines += [f"## {part['title']}\n", f"{part['about']}\n", "| message | it means | do |", "|---|---|---|"]
        lines += [f"| {_code(row['text'])} | {row['means']} | {row['do']} |" for row in part["row"]]
        lines.append("")
    return "\n".join(lines)


def pieces(text: str) -> list[str]:
    """The parts of a message that are the same whatever it is about."""
    return [piece for piece in (piece.strip() for piece in text.split("…")) if len(piece) > 2]


@cache
def said() -> tuple[tuple[str, str], ...]:
    """Each message of the product, with the file and line that says it: of errors that end a command, and of log lines of level
    error. … stands for what is not written there."""
    return tuple(one for path in sorted((ROOT / "src").rglob("*.py")) for one in _said_by(path))


def _said_by(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text("utf-8")
    if not re.search(rf"\b(error|{'|'.join(ERRORS)})\(", text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args and _says(node.func):
            first = node.args[0]
            for one in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", _text(one)


def missing() -> list[str]:
    """The messages that have no row and are not left out."""
    rows = [pieces(row["text"]) for part in PARTS for row in part["row"]]
    return [f"{place}: {text}" for place, text in said()
            if not any(all(piece in text for piece in row) for row in rows)
            and not any(pattern.fullmatch(text) for pattern in LEFT_OUT)]  # fmt: skip


def _says(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr == "error" and ast.unparse(called.value) in ("log", "self.log")
    return isinstance(called, ast.Name) and called.id in ERRORS


def _text(expression: ast.expr) -> str:
    """Return what is written of a message; a text that is made elsewhere is … alone."""
    if isinstance(expression, ast.JoinedStr):
        return "".join(_text(part) for part in expression.values)
    if isinstance(expression, ast.Constant):
        return re.sub(r"%\.?\d*[sdfr]", "…", str(expression.value))
    return "…"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def main(words: list[str]) -> int:
    if words == ["--missing"]:
        print(*missing(), sep="\n")
        return 1 if missing() else 0
    PAGE.write_text(markdown(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
