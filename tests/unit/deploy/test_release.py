"""The version stands in one place, and files that say it say the same."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import yaml
from kit import release

import pumice
import pumice_lab

ROOT = release.ROOT


def test_files_that_say_the_version_say_this_one() -> None:
    """`python -m kit.release` writes them."""
    assert [str(path.relative_to(ROOT)) for path, text in release.written().items() if path.read_text("utf-8") != text] == []
    assert pumice.__version__ == pumice_lab.__version__ == release.version()


def test_no_file_that_users_apply_or_install_from_says_another() -> None:
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text("utf-8"))
    assert {chart["version"], chart["appVersion"]} == {pumice.__version__}
    for pattern in ("deploy/**/*", "src/pumice/manifests/*", "docs/**/*.md", "examples/**/*", "README.md"):
        for path in (path for path in ROOT.glob(pattern) if path.is_file() and path.suffix not in (".png", ".svg", ".pyc")):
            named = re.findall(r"pumice/pumice:(\d[\w.]*\d)", path.read_text("utf-8"))
            assert set(named) <= {pumice.__version__}, path


def test_wheels_read_it_when_they_are_built() -> None:
    for folder, package in ((ROOT, "pumice"), (ROOT / "lab", "pumice_lab")):
        made_of = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        assert "version" in made_of["project"]["dynamic"]
        assert made_of["tool"]["setuptools"]["dynamic"]["version"] == {"attr": f"{package}.__version__"}


def test_the_next_version_is_written_everywhere_by_one_call(tmp_path: Path) -> None:
    for path in (*release.written(), ROOT / release.SOURCE):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    source = tmp_path / release.SOURCE
    source.write_text(source.read_text("utf-8").replace(f'"{pumice.__version__}"', '"9.8.7"'), "utf-8")
    for path, text in release.written(tmp_path).items():
        assert "9.8.7" in text, path
        assert f"pumice:{pumice.__version__}" not in text, path


def test_the_changelog_begins_with_this_release_and_goes_on_with_the_last() -> None:
    titles = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    versions = [title.split()[0] for title in titles if title[0].isdigit()]
    assert versions[:2] == [pumice.__version__, release.LAST.version]
