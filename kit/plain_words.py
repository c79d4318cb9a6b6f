"""The documents for users in plain words: ``python -m kit.plain_words``, which ``make check`` runs.

A sentence has at most 25 words, those of a page 15 on average. Words that only this project knows stay out of what users read.
Code and links' targets are no prose. ``kit/plain_words.toml`` names the words, and which pages are for developers.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST, MEAN = 25, 15
FEW = 20
"""Of fewer sentences no mean is asked."""
RULES = tomllib.loads((Path(__file__).parent / "plain_words.toml").read_text("utf-8"))


def pages() -> dict[str, Path]:
    """Every page in English but decisions."""
    found = {path.relative_to(ROOT).as_posix(): path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}
    return {name: path for name, path in found.items() if not name.startswith(tuple(RULES["left_out"]))}


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs, items, headings and cells of a page, each with the number of its first line."""
    for left_out in (r"^( *(?:\d+\.|[-*])? *)(```|~~~).*?^ *\2[ \t]*$", r"<!--.*?-->"):
        text = re.sub(left_out, lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    start, lines = 0, []
    for at, line in enumerate([*text.splitlines(), ""], 1):
        code = line.startswith("    ") and not lines
        begins = not line.strip() or code or re.match(r"\s*(#|\||[-*] |\d+\. |>)", line)
        if begins and lines:
            yield start, " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from ((at, cell) for cell in line.strip().strip("|").split("|") if not re.fullmatch(r"[\s:|-]*", cell))
        elif line.strip() and not code:
            start = start if lines else at
            lines.append(re.sub(r"^\s*(#+|[-*]|\d+\.|>)\s+", "", line).strip())


def sentences(text: str) -> Iterator[tuple[int, str]]:
    for line, block in prose(text):
        plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", block)
        plain = re.sub(r"`[^`]*`", "CODE", plain).replace("**", "")
        for sentence in re.split(r"(?<=[.!?:])\s+", plain):
            yield line, sentence


def faults(text: str, words: Mapping[str, str] = RULES["words"]) -> Iterator[tuple[int, str]]:
    """The line and what is to be mended there. ``words``: which stay out, and what to say instead."""
    counts = []
    for line, sentence in sentences(text):
        count = len(re.findall(r"[\w’'/-]*\w", sentence))
        if sentence.rstrip().endswith((".", "!", "?")):  # headings and cells of tables are none
            counts.append(count)
        if count > LONGEST:
            yield line, f"{count} words in one sentence, {LONGEST} are the most: {sentence[:60]}..."
        for word, plainer in words.items():
            if re.search(rf"\b{word}\b", sentence, re.I):
                yield line, f"{word!r}: {plainer}"
    if len(counts) >= FEW and (mean := sum(counts) / len(counts)) > MEAN:
        yield 1, f"its {len(counts)} sentences have {mean:.1f} words on average, {MEAN} are the most"


def check() -> Iterator[str]:
    """Yield a line for each fault of a page."""
    for name, path in pages().items():
        words = {} if name.startswith(tuple(RULES["for_developers"])) else RULES["words"]
        yield from (f"{name}:{line}: {what}" for line, what in faults(path.read_text("utf-8"), words))


def main() -> int:
    lines = list(check())
    print(*lines, sep="\n", end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    raise SystemExit(main())
