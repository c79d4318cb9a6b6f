"""Statements of the documents about the code are true: rooms, the flow of imports, files, links and commands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pumice.devices.card_policies import POLICIES
from pumice_jobs.admission.rules import RULES, SHARES_TO_CLAIMS

ROOT = Path(__file__).parents[3]
PACKAGE, JOBS = ROOT / "src" / "pumice", ROOT / "src" / "pumice_jobs"
LABORATORY = ROOT / "lab" / "src" / "pumice_lab"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*/README.md"), *ROOT.glob("*/README.md")])
MODULES = {"grpcio": "grpc", "protobuf": "google.protobuf", "pyyaml": "yaml", "nvidia-ml-py": "pynvml", "google-re2": "re2",
           "jinja2": "jinja2"}  # fmt: skip
"""Where a dependency's module has another name."""
COME_ALONG = {"yarl": "aiohttp's URLs"}
"""Modules that a dependency brings and shows in its own calls."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_room_has_a_row_and_every_row_a_room():
    rows = set(re.findall(r"^\| `([\w/]+)` \|", ARCHITECTURE, re.M))
    rooms = {entry.name for entry in PACKAGE.iterdir()
             if not entry.name.startswith("_") and any(map(Path.is_file, entry.glob("*")))}  # fmt: skip
    assert rows == rooms | {JOBS.name, "native/vgpu", "lab", "lab/native"}


def test_the_flow_of_imports_is_the_one_that_is_enforced():
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    enforced = [sorted(re.findall(r"pumice[._](\w+)", layer)) for layer in contract["layers"]]
    (line,) = re.findall(r"^`lab` > .*$", ARCHITECTURE, re.M)
    assert [sorted(re.findall(r"`(\w+)`", layer)) for layer in line.split(" > ")] == enforced


def test_every_dependency_is_used_and_has_its_reason():
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [*PROJECT["project"]["dependencies"], *extras["kubernetes"], *extras["top"], *extras["web"]]
    named = [re.split(r"[<>=]", line)[0] for line in lines]
    modules = {MODULES.get(n.lower(), n).partition(".")[0] for n in named} | set(COME_ALONG)
    imported = {word for package in (PACKAGE, JOBS) for path in package.rglob("*.py") for word in roots(path)}
    of_laboratory = {word for path in LABORATORY.rglob("*.py") for word in roots(path)}
    of_laboratory -= {PACKAGE.name, JOBS.name, LABORATORY.name}
    foreign = imported - set(sys.stdlib_module_names) - {PACKAGE.name, JOBS.name}
    reasons = (ROOT / "docs" / "adr" / "0001-dependencies.md").read_text("utf-8").lower()
    assert (foreign - modules, modules - foreign) == (set(), set()), "imported and not declared; declared and not imported"
    assert [n for n in named if n.lower() not in reasons] == []
    assert of_laboratory - set(sys.stdlib_module_names) <= modules
    laboratory = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert sorted(laboratory) == sorted(lines), "the laboratory brings what it needs, and all that a product without extras lacks"


def roots(path: Path) -> set[str]:
    """The packages that a file imports from, read from its lines: parsing all files takes seconds."""
    return set(re.findall(r"^ *(?:import|from) (\w+)(?=[\w.]* import | as |[\w.]*(?:$|  #))", path.read_text("utf-8"), re.M))


def test_after_make_setup_man_finds_the_pages_of_the_commands_on_path(tmp_path: Path) -> None:
    """It looks in share/man beside each folder of PATH; an editable installation brings no pages."""
    pages = tmp_path / ".venv" / "share" / "man" / "man1"
    assert "$(VENV)/share/man/man1" in re.findall(r"^setup: .*?##", (ROOT / "Makefile").read_text("utf-8"), re.M)[0]
    subprocess.run(["make", "-s", f"VENV={tmp_path}/.venv", str(pages)], cwd=ROOT, check=True, timeout=60)
    assert (pages / "pumice.1").read_text("utf-8").startswith(".")
    assert (pages / "pumice-run.1").is_file()
    assert (pages / "pumice-up.1").is_file()


def test_the_webhooks_of_volcano_that_are_off_are_named():
    (reported,) = re.findall(r"^`/pods/mutate`.*? are off in both", (ROOT / "docs/reference/jobs.md").read_text("utf-8"), re.M)
    off = {rule.path for rule in RULES if not rule.default and not rule.path.startswith("/tenants/")} - {*SHARES_TO_CLAIMS}
    assert set(re.findall(r"`(/\w+/\w+)`", reported)) == off


@pytest.mark.parametrize("policy", POLICIES)
def test_every_card_policy_stands_on_the_page_of_device_sharing(policy: str) -> None:
    assert f"`{policy}`" in (ROOT / "docs/reference/device-sharing.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_and_link_that_a_page_names_is_there(page):
    text = page.read_text("utf-8")
    links = [target for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text) if not (page.parent / target).exists()]
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|yaml|yml|json|gz|def|h|c|sh))`", text)
    homes = (ROOT, PACKAGE, JOBS, LABORATORY, page.parent, page.parent / "src", ROOT / "tests" / "native")
    files = [name for name in named if not any((home / name).exists() for home in homes)]
    assert (links, files) == ([], [])


def test_every_target_of_make_that_a_page_names_is_one():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    wanted = {(str(page.relative_to(ROOT)), word) for page in PAGES
              for word in re.findall(r"`make (?:-s )?([a-z0-9][a-z0-9-]*)", page.read_text("utf-8"))}  # fmt: skip
    assert [(page, word) for page, word in wanted if word not in targets] == []


@pytest.mark.parametrize(("page", "order"), [
    ("docs/known-weaknesses.md", ["stops", "wrong", "slow", "untried"]),
    ("docs/zh/known-weaknesses.md", ["不能用", "有误", "慢", "未试过"]),
])  # fmt: skip
def test_known_weaknesses_stand_from_the_worst_to_the_least_for_each_reader_and_are_dated(page: str, order: list[str]) -> None:
    parts = (ROOT / page).read_text("utf-8").split("\n## ")[1:]
    rows = [[line for line in part.splitlines() if line.startswith("| ")][1:] for part in parts]
    assert [row for table in rows for row in table if not re.search(r"\| 2026-\d\d-\d\d \|$", row)] == []
    tables = [[row.split(" | ")[0].removeprefix("| ") for row in table] for table in rows]
    assert all(tables)
    assert {word for table in tables for word in table} == set(order)
    assert [table for table in tables if table != sorted(table, key=order.index)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/zh/README.md"])
def test_the_readme_is_one_screen_with_a_picture_that_moves_and_two_commands(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert len(text.splitlines()) <= 60
    (picture,) = re.findall(r"!\[.*\]\((?:\.\./)?(?:docs/)?(.*)\)", text)
    assert "<animate" in (drawn := (ROOT / "docs" / picture).read_text("utf-8")) or "@keyframes" in drawn
    typed = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)).splitlines()
    assert [line.split()[0] for line in typed if not line.startswith("export ")] == ["make", "pumice"]
    assert len(re.findall(r"^\|---", text, re.M)) == 2, "against what is used today, and where to go next"
