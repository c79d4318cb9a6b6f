"""The page of environment variables, docs/reference/environment.md: ``python -m kit.environment`` writes it.

Variables that stand for a flag are read from the commands' own parsers, those of ``libvgpu.so`` from its options
(``native/vgpu/options.def``). All others have a row in ``kit/environment.toml``.
``tests/unit/docs/test_environment_page.py`` looks through the code for one that is in neither.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from kit.command_pages import groups

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/environment.md"
ROWS = tomllib.loads((Path(__file__).parent / "environment.toml").read_text("utf-8"))


def of_flags() -> dict[str, dict[str, list[str]]]:
    """Of each variable that a flag reads: the flags, each with the commands that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for command in (one for tops in groups().values() for top in tops for one in top.all()):
        for written, meaning in command.options:
            *_, names = meaning.rpartition("[env var: ") if "[env var: " in meaning else ("", "")
            for name in re.findall(r"[A-Z][A-Z0-9_]+", names.partition("]")[0].partition(";")[0]):
                flag = written.split(",")[0].split(" ")[0].split("/")[0]
                found.setdefault(name, {}).setdefault(flag, []).append(command.words)
    return dict(sorted(found.items()))


def of_library() -> list[tuple[str, str, str, str]]:
    """Each variable of ``libvgpu.so``: its name, its unit, its default, and what it means. What the library's own page has
    below its table is not on this one."""
    text = (ROOT / "native/vgpu/options.def").read_text("utf-8")
    rows = re.findall(r'^OPTION\(\w+, \w+, (\w+), "([^"]*)", ([^,]*), "(.*)"\)$', text, re.M)
    return [(name, unit, default.strip('"'), meaning.removesuffix(" (below)")) for name, unit, default, meaning in rows]


def written() -> set[str]:
    """Every variable of the page."""
    return {*of_flags(), *(name for name, *_ in of_library()), *(row["name"] for part in ROWS["part"] for row in part["row"])}


def markdown() -> str:
    lines = [HEAD]
    for part in ROWS["part"]:
        lines += [f"## {part['title']}\n", f"{part['about']}\n", "| variable | who sets it | what it does |", "|---|---|---|"]
        lines += [f"| `{row['name']}` | {row['by']} | {row['does']} |" for row in part["row"]]
        lines.append("")
    lines += [OF_LIBRARY, "| variable | unit | default | what it means |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {unit} | {f'`{default}`' if default else ''} | {meaning} |"
        for name, unit, default, meaning in of_library()
    ]
    lines += ["", OF_FLAGS, "| variable | flag | of |", "|---|---|---|", *_flags(), ""]
    return "\n".join(lines)


def _flags() -> Iterator[str]:
    for name, flags in of_flags().items():
        for flag, words in flags.items():
            of = ", ".join(f"`{one}`" for one in words) if len(words) <= 4 else f"{len(words)} commands"
            yield f"| `{name}` | `{flag}` | {of} |"


HEAD = """\
# Environment variables

Every variable that a program, the library or a container of Pumice reads or sets. `python -m kit.environment` makes this page.
A variable that a user writes into a pod is a wish. What the node's plugin wrote on the container's limits page wins over it
([how a limit is held](../concepts/limits.md)).
"""
OF_LIBRARY = """\
## The library that holds limits

`libvgpu.so` reads them when a program starts. Plugin and `pumice run` set the limits; the rest is for whoever runs the program.
"""
OF_FLAGS = """\
## Variables in place of a flag

A flag on the command line wins over its variable. [Commands](commands.md) says what each flag does.
"""


def main() -> int:
    PAGE.write_text(markdown(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
