"""The two wheels, as `make wheel` builds them: what they are for, what they hold, and what they serve where nothing else is
installed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

import pytest
from kit import every_command
from kit.command_pages import man_pages
from kit.local_cluster import local_cluster
from packaging.requirements import Requirement

import pumice
from pumice.cli.extras import BROUGHT_BY
from pumice.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"burn", "completion", "limit", "lint", "mig", "ps", "run", "top", "vgpu"}
"""The commands that `pumice` serves without an extra and without the laboratory."""
NOT_FOR_A_SHARE = {
    "asyncio", "hashlib", "importlib.metadata", "logging", "numpy", "rich", "tomllib", "yaml", "pumice.effects.vocabulary",
    "pumice.ports.slices", "pumice.wire.mindcluster", "pumice.wire.npu_config", "pumice_lab.machine.model",
}  # fmt: skip
OF_PEP_599 = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@dataclass(frozen=True)
class Wheels:
    product: Path
    laboratory: Path

    @classmethod
    def of(cls, folder: Path) -> Wheels:
        (product,), (laboratory,) = folder.glob("pumice-*.whl"), folder.glob("pumice_lab-*.whl")
        return cls(product, laboratory)

    @property
    def both(self) -> tuple[Path, Path]:
        return self.product, self.laboratory


@dataclass(frozen=True)
class Installed:
    wheels: Wheels
    venv: Path
    home: Path

    def run(self, *words: str, program: str = "pumice", given: str | None = None) -> subprocess.CompletedProcess[str]:
        """In an environment in which no compiler is found, nor anything else."""
        environ = {"PATH": str(self.venv / "bin"), "HOME": str(self.home), "COLUMNS": "200"}
        command = [str(self.venv / "bin" / program), *words]
        return subprocess.run(command, env=environ, cwd=self.home, input=given, capture_output=True, text=True, timeout=120)

    def served(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(destination: Path, *more: str) -> Wheels:
    make = ["make", "-s", "-o", "setup", "wheel", f"DIST={destination}", *more]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return Wheels.of(destination)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def installed(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Both wheels in a new environment beside what the product asks for, and nothing that only an extra asks for."""
    return install(wheels, tmp_path_factory.mktemp("both"), *wheels.both)


@pytest.fixture(scope="module")
def alone(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The product without a laboratory."""
    return install(wheels, tmp_path_factory.mktemp("alone"), wheels.product)


@pytest.fixture(scope="module")
def product(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The product with its extra for a cluster, without a laboratory."""
    return install(wheels, tmp_path_factory.mktemp("product"), wheels.product, extra="kubernetes")


def install(wheels: Wheels, directory: Path, *files: Path, extra: str = "") -> Installed:
    venv, home = directory / "venv", directory / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=60)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in _with_what_they_ask_for(_asked_for(wheels.product), extra=extra):
        for top in {Path(str(file)).parts[0] for file in metadata.files(name) or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(metadata.distribution(name).locate_file(top))
    pip = [sys.executable, "-m", "pip", f"--python={venv / 'bin/python'}", "install", "--quiet", "--no-index", "--no-deps",
           "--no-compile"]
    done = subprocess.run([*pip, *map(str, files)], env={"PATH": str(venv / "bin")}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return Installed(wheels, venv, home)


def _asked_for(wheel: Path) -> Iterator[Requirement]:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        lines = files.read(name).decode().splitlines()
    yield from (Requirement(line.partition(":")[2]) for line in lines if line.startswith("Requires-Dist:"))


def _with_what_they_ask_for(requested: Iterable[Requirement], seen: frozenset[str] = frozenset(), extra: str = "") -> set[str]:
    found: set[str] = set()
    for one in requested:
        if one.name not in seen | found and (one.marker is None or one.marker.evaluate({"extra": extra})):
            found.add(one.name)
            found |= _with_what_they_ask_for([Requirement(line) for line in metadata.requires(one.name) or []], seen | found)
    return found


@pytest.mark.parametrize(("package", "carried"), [
    ("product", {"libvgpu.so"}),
    ("laboratory", {"libcuda.so.1", "libnvidia-ml.so.1", "libdcmi.so", "libcudart.so.13", "nvidia-cuda-mps-control"}),
])  # fmt: skip
def test_it_is_for_every_linux_since_glibc_2_17_and_its_libraries_ask_for_no_more(
    wheels: Wheels, tmp_path: Path, package: str, carried: set[str]
) -> None:
    arch, wheel = platform.machine(), getattr(wheels, package)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{arch}.manylinux2014_{arch}.whl")
    with zipfile.ZipFile(wheel) as files:
        native = [name for name in files.namelist() if "/_native/" in name]
        files.extractall(tmp_path, native)
        assert not [name for name in files.namelist() if name.startswith(("tests/", "lab/", "kit/"))]
    found = {Path(name).name for name in native}
    assert (carried - found, "libvgpu.so" in found) == (set(), package == "product")
    for name in native:
        said = subprocess.run(["objdump", "-p", "-T", str(tmp_path / name)], capture_output=True, text=True, check=True).stdout
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", said)}
        assert all(version <= (2, 17) for version in versions), name
        assert set(re.findall(r"NEEDED +(\S+)", said)) <= OF_PEP_599, name


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="no compiler for arm64 (gcc-aarch64-linux-gnu) is here")
def test_a_compiler_for_arm64_makes_a_wheel_for_arm64(tmp_path: Path) -> None:
    for wheel in build(tmp_path, "CC=aarch64-linux-gnu-gcc").both:
        assert wheel.name.endswith("-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl")


def test_man_finds_the_pages_of_every_command(installed: Installed, alone: Installed) -> None:
    assert "pumice-up.1" not in {path.name for path in (alone.venv / "share/man/man1").iterdir()}
    pages = installed.venv / "share/man/man1"
    assert {path.name for path in pages.iterdir()} == set(man_pages())
    if shutil.which("man"):
        environ = {"PATH": os.environ["PATH"], "MANPATH": str(pages.parent), "LC_ALL": "C.UTF-8"}
        for name in ("pumice", "pumice-run", "vcctl", "vsub", "kubectl-inspect-gpushare"):
            assert subprocess.run(["man", name], env=environ, capture_output=True, timeout=60).stderr == b"", name


def test_it_is_the_same_however_often_it_is_built(installed: Installed, tmp_path: Path) -> None:
    assert [wheel.read_bytes() for wheel in build(tmp_path).both] == [wheel.read_bytes() for wheel in installed.wheels.both]


def test_without_a_compiler_and_without_extras_a_program_runs_with_its_share(installed: Installed) -> None:
    assert "--memory" in installed.served("run", "--help")
    installed.served("run", "--emulated", "--memory", "40%", "--", "/bin/true")
    installed.served("run", "--emulated", "--memory", "40%", "--", "pumice", "burn", "--seconds", "0.1")
    assert "No program runs" in installed.served("ps")
    assert "1080" in installed.served("machine", "create", "m", "--cards", "2xGeForce-GTX-1080-Ti")
    assert "1080" in installed.served("machine", "show", "m")
    assert "cards" in installed.served("run", "--emulated", "m", "--", "pumice", "top", "--once", "-o", "json")
    refused = installed.run("limit", "r9", "--cores", "20")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "no program of `pumice run`" in refused.stderr
    (installed.home / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n")
    assert "Traceback" not in installed.run("lint", "pod.yaml").stderr


def test_vcctl_says_of_which_commit_it_was_built_and_when(installed: Installed) -> None:
    done = installed.run("version", program="vcctl")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    reported = subprocess.run(["git", "log", "-1", "--format=%H %ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    commit, at = reported.stdout.split()
    assert said["Git SHA"] == commit
    assert datetime.fromisoformat(said["Built At"]).timestamp() == int(at)


def test_a_program_does_not_wait_for_what_its_share_needs_not(installed: Installed) -> None:
    installed.served("run", "--emulated", "--", "/bin/true")  # makes the machine
    words = ("-X", "importtime", "-m", "pumice", "run", "--emulated", "--memory", "40%", "--", "/bin/true")
    done = installed.run(*words, program="python")
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M))
    assert "pumice.local.start" in imported
    assert imported & NOT_FOR_A_SHARE == set()


def test_a_command_whose_extra_is_missing_says_in_a_line_what_brings_it(installed: Installed) -> None:
    pip = rf"{re.escape(str(installed.venv))}/bin/python\d? -m pip install '{re.escape(str(installed.wheels.product))}"
    one_line = r"\w+: `{}` needs the Python package \w+, which is not installed; " + pip + r"\[{}\]' brings it\n"
    for words, extra in {
        ("scheduler",): "kubernetes", ("device-plugin", "nvidia"): "kubernetes", ("explain", "pod", "p"): "kubernetes",
        ("job", "list"): "kubernetes", ("up",): "kubernetes", ("doctor", "node"): "kubernetes",
    }.items():  # fmt: skip
        done = installed.run(*words)
        assert done.returncode == 2
        assert re.fullmatch(one_line.format(f"pumice {words[0]}", extra), done.stderr), done.stderr
    done = installed.run("queue", "list", program="vcctl")
    assert re.fullmatch(one_line.format("vcctl queue", "kubernetes"), done.stderr), done.stderr


def test_every_command_that_is_served_alone_explains_itself_without_extras(alone: Installed) -> None:
    for name in sorted(ALONE):
        assert COMMANDS[name]
        assert "usage" in alone.served(name, "--help").lower(), name


def test_without_the_laboratory_a_line_says_which_file_brings_it(alone: Installed) -> None:
    pip = rf"{re.escape(str(alone.venv))}/bin/python\d? -m pip install '{re.escape(str(alone.wheels.laboratory))}' brings it"
    for words, who in {
        ("up", "-d"): "`pumice up`", ("status",): "`pumice status`", ("machine", "show", "m"): "`pumice machine`",
        ("down", "--help"): "`pumice down`", ("run", "--emulated", "--", "/bin/true"): "`--emulated`",
    }.items():  # fmt: skip
        done = alone.run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        line = rf"pumice(?: run)?: {who} needs the laboratory of Pumice, which is not installed; {pip}\n"
        assert re.fullmatch(line, done.stderr), done.stderr
    reported = alone.served("--help")
    assert (
        "  run " in reported,
        "  up " in reported,
        "  machine " in reported,
        "A cluster on this machine" in reported,
    ) == (True, *[False] * 3)
    burning = alone.run("burn", "--kernels", "1")
    assert (burning.returncode, burning.stderr.count("\n")) == (2, 1)


def test_every_command_of_the_product_serves_without_the_laboratory(product: Installed, tmp_path: Path) -> None:
    def python(program: str, given: str) -> subprocess.CompletedProcess[str]:
        return product.run("-c", program, program="python", given=given)

    here = list(every_command.without_cluster(tmp_path))
    assert not every_command.all_that_is_wrong(python, [*every_command.helps(), *here, *every_command.without_words(here)])
    with local_cluster(tmp_path / "cluster") as cluster:
        every_command.furnish(cluster, python)
        assert not every_command.all_that_is_wrong(python, list(every_command.in_a_cluster(cluster, tmp_path)))


def test_a_laboratory_of_another_version_is_refused(installed: Installed, tmp_path: Path) -> None:
    other = tmp_path / "pumice_lab"
    other.mkdir()
    (other / "__init__.py").write_text('__version__ = "0.0.9"\n')
    for words in (("up",), ("run", "--emulated", "--", "/bin/true")):
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from pumice.cli.main import main; main({list(words)!r})"
        done = installed.run("-c", program, program="python")
        assert done.returncode == 2
        own = re.escape(pumice.__version__)
        reported = rf"pumice.*: .* needs the laboratory of Pumice of version {own}, and 0\.0\.9 is installed; .*\n"
        assert re.fullmatch(reported, done.stderr), done.stderr


def test_what_the_sentence_names_is_what_the_extra_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    imported_as = {"Jinja2": "jinja2", "grpcio": "grpc", "protobuf": "google", "google-re2": "re2"}
    for extra, packages in BROUGHT_BY.items():
        names = [Requirement(line).name for line in extras[extra]]
        assert sorted(packages) == sorted(imported_as.get(name, name) for name in names if name != "pumice")
