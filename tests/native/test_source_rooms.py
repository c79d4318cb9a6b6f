"""The rooms of the native sources: which includes which, and one list of what the environment can say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pumice.wire import variables

ROOT = Path(__file__).parents[2]
VGPU = ROOT / "native" / "vgpu"
MACHINE = ROOT / "lab" / "native"
OPTION = re.compile(r'^OPTION\(\w+, \w+, (\w+), "([^"]*)", (.+?), "(.*)"\)$', re.MULTILINE)


def options() -> list[tuple[str, str, str, str]]:
    """Name, unit, what holds otherwise and meaning of each."""
    return [
        (name, unit, otherwise.strip('"'), meaning)
        for name, unit, otherwise, meaning in OPTION.findall((VGPU / "options.def").read_text())
    ]


def modules(room: Path, prefix: str) -> dict[str, set[str]]:
    """Which modules of a room, a header with its source file, include which."""
    found: dict[str, set[str]] = {}
    for source in room.glob("*.[ch]"):
        included = {
            Path(name).stem for name in re.findall(rf'^#include "{prefix}([\w.]+)"', source.read_text(), re.MULTILINE)
        }
        found.setdefault(source.stem, set()).update(included - {source.stem})
    return found


def ring(graph: dict[str, set[str]]) -> list[str]:
    """Return the rest after removing files that include no other."""
    left = dict(graph)
    while leaves := [name for name, included in left.items() if not included & left.keys()]:
        for name in leaves:
            del left[name]
    return sorted(left)


@pytest.mark.parametrize(
    ("room", "prefix"),
    [
        ("native/vgpu/src/core", "core/"),
        ("native/vgpu/src/policy", "policy/"),
        ("native/vgpu/src/book", "book/"),
        ("native/vgpu/src/driver", "driver/"),
        ("lab/native/src/core", ""),
        ("lab/native/src/cuda", ""),
        ("lab/native/src/nvml", ""),
        ("lab/native/src/runtime", ""),
    ],
)
def test_modules_of_a_room_do_not_include_each_other_in_a_ring(room: str, prefix: str) -> None:
    graph = modules(ROOT / room, prefix)
    assert graph
    assert ring(graph) == []


@pytest.mark.parametrize(("room", "entry"), [("cuda", "cu[A-Z]"), ("nvml", "nvml[A-Z]")])
def test_what_the_machines_libraries_share_inside_has_a_prototype(room: str, entry: str) -> None:
    """Only the entries have none: they are declared in somebody else's headers, which are not here."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("no C compiler")
    source = MACHINE / "src"
    folders = [f"-I{folder}" for folder in (MACHINE / "include", source / "core", source / room)]
    done = subprocess.run([compiler, "-std=c11", "-fsyntax-only", "-Wmissing-prototypes", *folders, *(source / room).glob("*.c")],
                          capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    reported = re.findall(r"no previous prototype for (?:function )?'(\w+)'", done.stderr)
    assert len(reported) > 100
    assert [name for name in reported if not re.match(entry, name)] == []


LAYERS = ("core", "policy", "book", "driver", "services", "intercepts")
"""Each room includes itself and what stands before it."""


@pytest.mark.parametrize("room", LAYERS)
def test_a_room_of_the_library_includes_only_what_it_stands_on(room: str) -> None:
    above = LAYERS[LAYERS.index(room) + 1 :]
    for source in (VGPU / "src" / room).glob("*.[ch]"):
        included = re.findall(r'^#include "(\w+)/', source.read_text(), re.MULTILINE)
        assert not set(included) & set(above), source


def test_every_hook_is_an_intercept_and_nothing_else_is_one() -> None:
    """An entry has a shape that ``entries.c`` makes, or it is written out."""
    shape_of = dict(re.findall(r"^HOOK\(\w+, (\w+),.*, (\w+)\)$", (VGPU / "hooks.def").read_text(), re.MULTILINE))
    made = re.findall(r"^#define ENTRY_(\w+)\(", (VGPU / "src/intercepts/entries.c").read_text(), re.MULTILINE)
    assert set(made) == set(shape_of.values())
    defined: dict[str, str] = {}
    for source in (VGPU / "src").glob("*/*.c"):
        for name in re.findall(
            r"^(?:CUresult|nvmlReturn) (cu[A-Z]\w+|nvml[A-Z]\w+)\(", source.read_text(), re.MULTILINE
        ):
            defined[name] = source.parent.name
    assert defined == dict.fromkeys((name for name, shape in shape_of.items() if shape == "OWN"), "intercepts")


def test_the_manual_lists_every_option_as_the_library_reads_it() -> None:
    manual = (VGPU / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", manual, re.MULTILINE)
    assert rows == [(name, unit, f"`{value}`" if value else "", meaning) for name, unit, value, meaning in options()]


def test_nothing_is_read_from_the_environment_that_is_no_option() -> None:
    for source in (VGPU / "src").glob("*/*.c"):
        requested = re.findall(r'(?:getenv|lookup)\("(\w+)"\)', source.read_text())
        assert requested == [], source


def test_the_project_speaks_of_options_by_the_names_that_the_library_reads() -> None:
    names = {name for name, *_ in options()}
    spoken = {
        variables.MEMORY_LIMIT,
        variables.SM_LIMIT,
        variables.SHARED_CACHE,
        variables.OVERSUBSCRIBE,
        variables.TASK_PRIORITY,
        variables.CORE_POLICY,
        variables.LIBRARY_LOG_LEVEL,
        variables.SHARED_CARDS,
        variables.LOCK_DIRECTORY,
    }
    assert spoken <= names
    ours = {
        value for name, value in vars(variables).items() if isinstance(value, str) and value.startswith("PUMICE_VGPU_")
    }
    assert ours <= names
