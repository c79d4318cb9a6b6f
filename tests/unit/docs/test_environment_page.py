"""The page of environment variables names every one that the code has, and is what its table makes."""

from __future__ import annotations

import re

from kit import environment
from tests.golden.test_seen_from_outside import HERE as OUTSIDE

NONE_OF_OURS = re.compile(
    r"ACL_ERROR.*|CUDA_ERROR.*|CUDA_SUCCESS|NVML_ERROR.*"  # words of drivers
    r"|(AUDIT|DAC|NET|SYS)_[A-Z_]+|SC_[A-Z_]+|ASSERT_NOT|GROUPREF_EXISTS|PRETTY_NAME"  # of the kernel, of CEL, of os-release
    r"|.*_(LIMIT|MEM)_\d+"
)
"""Strings of that form that no environment holds."""


def test_the_page_is_what_the_table_makes() -> None:
    """``python -m kit.environment``"""
    assert environment.PAGE.read_text("utf-8") == environment.markdown()


def test_every_variable_of_the_code_stands_on_it() -> None:
    """All that the code has are in the golden file, as ``tests/golden/test_seen_from_outside.py`` finds by reading it whole."""
    names = set((OUTSIDE / "environment.txt").read_text("utf-8").split()) - environment.written()
    assert len(names) > 100
    assert [name for name in names if not NONE_OF_OURS.fullmatch(name)] == []


def test_no_variable_stands_on_it_that_the_code_does_not_have() -> None:
    root = environment.ROOT
    places = [*root.glob("src/**/*.py"), *root.glob("lab/src/**/*.py"), *root.glob("src/pumice/manifests/*.yml"),
              *root.glob("native/**/*.[ch]"), *root.glob("native/**/*.def"), *root.glob("lab/native/**/*.[ch]")]  # fmt: skip
    words = {word for path in places for word in re.findall(r"[A-Z][A-Z0-9_]+", path.read_text("utf-8"))}
    assert environment.written() - words == set()


def test_each_variable_stands_in_one_place() -> None:
    rows = [row["name"] for part in environment.ROWS["part"] for row in part["row"]]
    rows += [name for name, *_ in environment.of_library()]
    assert sorted(rows) == sorted(set(rows))
    assert set(rows) & set(environment.of_flags()) == set()
