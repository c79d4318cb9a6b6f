"""The page of messages, docs/reference/errors.md, made of ``kit/messages.toml``: ``python -m kit.messages`` writes it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/errors.md"
PARTS = tomllib.loads((Path(__file__).parent / "messages.toml").read_text("utf-8"))["part"]
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


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def main() -> int:
    PAGE.write_text(markdown(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
