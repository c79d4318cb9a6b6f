"""Tell whether each translation is as new as its original: ``python -m kit.translations``, section by section.

A page of ``docs/zh`` ends with a comment: a hash of each section of the original, as it was when somebody translated it.
``--mark PAGE`` writes it anew after the translator's work; ``--release`` ends with 1 where a page is older than its original.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHINESE = ROOT / "docs" / "zh"
FENCE = re.compile(r"\s*(?:\d+\.\s+|[-*]\s+)?```")
"""Where code begins or ends, in an item of a list, too."""
MARK = re.compile(r"\n*<!-- sections of the original: ([0-9a-f ]*) -->\n*\Z")


def original_of(page: Path) -> Path:
    """``docs/zh/README.md`` translates the README, and every other page the one of the same name."""
    name = page.relative_to(CHINESE)
    return ROOT / "README.md" if name == Path("README.md") else ROOT / "docs" / name


def sections(text: str) -> list[tuple[str, str]]:
    """The headings of a page with what stands below each; a heading inside of code is none."""
    found: list[tuple[str, str]] = []
    code = False
    for line in text.splitlines():
        code ^= bool(FENCE.match(line))
        if not code and re.match(r"#{1,3} ", line):
            found.append((line.lstrip("# "), ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line.rstrip() + "\n")
    return found


def hashes(text: str) -> list[str]:
    """Of each section; what is no reader's, comments of HTML, makes no translation older."""
    text = re.sub(r"^ *<!--.*?-->\n", "", text, flags=re.M | re.S)
    return [sha256(f"{title}\n{below.strip()}".encode()).hexdigest()[:8] for title, below in sections(text)]


def older(page: Path) -> Iterator[str]:
    """Yield all of the original that has changed since this page was translated."""
    text, original = page.read_text("utf-8"), original_of(page).read_text("utf-8")
    found = MARK.search(text)
    if not found:
        yield "nobody has said which original it translates"
        return
    titles = [title for title, _ in sections(original)]
    for title, now, then in zip_longest(titles, hashes(original), found[1].split()):
        if now != then:
            yield f"section {title!r} has changed" if title else "a section has gone"


def mark(page: Path) -> None:
    stamp = " ".join(hashes(original_of(page).read_text("utf-8")))
    text = MARK.sub("", page.read_text("utf-8")).rstrip("\n")
    page.write_text(f"{text}\n\n<!-- sections of the original: {stamp} -->\n", "utf-8")


def pages() -> list[Path]:
    return sorted(CHINESE.rglob("*.md"))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--mark"]:
        for name in arguments[1:]:
            mark(Path(name).resolve())
        return 0
    stale = [f"{page.relative_to(ROOT)}: {what}" for page in pages() for what in older(page)]
    print(*stale, f"{len(pages())} pages in Chinese", sep="\n")
    return int(bool(stale) and arguments == ["--release"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
