"""The registry lists every folder of a device type, and no other room names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import pumice
import pumice_jobs
from pumice.devices.device_type import DeviceType
from pumice.devices.registry import ALIASES, ARGUMENTS, DEVICE_TYPES
from pumice.wire.scheduler_conf import PLUGIN_ARGUMENTS

ROOT = Path(pumice.__file__).parent
JOBS = Path(pumice_jobs.__file__).parent
FOLDERS = sorted(path.parent.name for path in (ROOT / "devices").glob("*/device_type.py"))
ALLOWED = re.compile(r"devices/registry\.py|wire/.*|manifests/.*")
"""Where a type may be named: the list of all, its words, and what is applied to a cluster."""
OUTSIDE = {
    "ascend_mindcluster": r"(?i)mindcluster",
    "ascend_hami": r"ascend_hami\b(?<!wire\.ascend_hami)",
    "nvidia_gpushare": r"devices\.nvidia_gpushare",
}
WORDS = [
    ("mindcluster", "ascend_hami device_reports held_shares mindcluster names our_devices programs variables"),
    ("ascend_hami", "held_shares mindcluster"),
    ("gpushare", "held_shares names nvidia_gpushare our_devices programs"),
]
"""The modules of ``wire`` that name a type. One that needs no longer to goes from here; none is added."""


def test_the_registry_lists_every_folder() -> None:
    rows = [value for name in FOLDERS for value in vars(import_module(f"pumice.devices.{name}.device_type")).values()]
    assert {id(row) for row in rows if isinstance(row, DeviceType)} == {id(row) for row in DEVICE_TYPES}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_other_room_names_a_type(name: str) -> None:
    found = []
    for path in sorted(ROOT.rglob("*")):
        where = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".toml") and not where.startswith(f"devices/{name}/") and not ALLOWED.fullmatch(where):
            found += [where] if re.search(OUTSIDE[name], path.read_text("utf-8")) else []
    assert found == (["devices/ascend_mindcluster/plugin/command.py"] if name == "ascend_hami" else [])


def test_a_scheduler_reads_each_argument_that_a_type_declares() -> None:
    read = {key for key in PLUGIN_ARGUMENTS["deviceshare"] if not key.endswith("*")}
    declared = {key for key in (*ARGUMENTS, *ALIASES) if key.startswith("deviceshare.")}
    assert read == declared


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def imported_by(module: str) -> frozenset[str]:
    """The modules of pumice that one of them imports."""
    path = ROOT.parent / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return frozenset(name for name in imports_of(path) if name.startswith("pumice.")) if path.exists() else frozenset()


@pytest.mark.parametrize("name", FOLDERS)
def test_no_device_type_imports_another_directly_or_by_others(name: str) -> None:
    own, others = f"pumice.devices.{name}.", tuple(f"pumice.devices.{other}." for other in FOLDERS if other != name)
    ahead = [own + path.relative_to(ROOT / "devices" / name).with_suffix("").as_posix().replace("/", ".")
             for path in (ROOT / "devices" / name).rglob("*.py")]  # fmt: skip
    via = dict.fromkeys(ahead, "")
    while ahead:
        module = ahead.pop()
        if module == "pumice.devices.ascend_mindcluster.plugin.command":
            continue  # one command for both modes
        for found in imported_by(module) - set(via):
            assert not found.startswith(others), f"{module} imports {found}; {via[module]}"
            via[found] = f"{module} {via[module]}"
            ahead.append(found)


def test_scheduler_lint_metrics_and_jobs_import_no_device_type() -> None:
    """What they need of one, its row in the registry says."""
    rooms = [ROOT / "apps/scheduler", ROOT / "devices/lint", ROOT / "scheduler", ROOT / "metrics", JOBS]
    paths = [ROOT / "devices/protocol.py", *(path for room in rooms for path in room.rglob("*.py"))]
    types = re.compile(rf"pumice\.devices\.({'|'.join(FOLDERS)})\b")
    assert [str(path) for path in paths if any(map(types.match, imports_of(path)))] == []


NPUS = re.compile(r"(?i)(?<![a-z])v?npus?(?![a-z])|huawei|ascend(?!ing)|(?<![a-z])(dcmi|310p)")
NAMES_NPUS = """
    __init__ adapters/dcmi/__init__ adapters/dcmi/cards adapters/dcmi/driver adapters/load adapters/region/reader
    apps/doctor/cluster/configuration apps/doctor/cluster/look apps/node/npu_metrics audit/auditor cli/burn cli/main
    devices/convert/config_maps devices/disabled_types devices/layout devices/lint/__init__ devices/lint/devices metrics/npu
    model/cards
    model/errors model/hardware/npu ports/slices scheduler/cycle/status
    admission/tenants apps/controller/share_hours controllers/claimed_shares controllers/job/plugins/frameworks
"""
"""The modules that know of NPUs, beside their folders and the words: their driver and its port, facts of chips, an auditor that
knows no table of ours, pages that both modes serve, and HAMi's ConfigMaps. One that needs no longer to goes from here."""


def test_no_more_rooms_know_of_npus_than_today() -> None:
    allowed = re.compile(rf"devices/ascend_.*|{ALLOWED.pattern}")
    found = [
        where.removesuffix(".py")
        for root in (ROOT, JOBS)
        for path in sorted(root.rglob("*.py"))
        if not allowed.fullmatch(where := path.relative_to(root).as_posix()) and NPUS.search(path.read_text("utf-8"))
    ]
    assert found == NAMES_NPUS.split()


@pytest.mark.parametrize(("name", "modules"), WORDS)
def test_no_more_modules_of_words_name_a_type_than_today(name: str, modules: str) -> None:
    found = [path.stem for path in sorted((ROOT / "wire").rglob("*.py")) if name in path.read_text("utf-8").lower()]
    assert found == modules.split()
