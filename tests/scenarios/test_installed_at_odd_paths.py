"""`pumice run` works wherever it is installed, also where the loader's lists would be cut in the middle of its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit.one_machine import OneMachine

import pumice
import pumice_lab
from pumice.adapters.native import loadable
from pumice.model.errors import Unavailable


@pytest.mark.parametrize("folder", ["my programs", "a:b", "two; words", "for $ORIGIN"])
def test_a_program_is_held_to_its_share_from_an_installation_at_any_path(folder: str, here: OneMachine, tmp_path: Path) -> None:
    installed = tmp_path / folder
    for package in (pumice, pumice_lab):
        source = Path(package.__file__).parent
        shutil.copytree(source, installed / source.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    if ":" in folder:  # which PYTHONPATH cannot name
        begin = ["-c", f"import sys; sys.path.insert(0, {str(installed)!r}); from pumice.cli.main import main; main()"]
        burn = [sys.executable, "-m", "pumice", "burn"]
    else:
        begin, burn = ["-m", "pumice"], ["pumice", "burn"]
    environment = {**here.environment, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, *begin, "run", "--emulated", str(here.directory), "--memory", "2000", "--", *burn, "--memory", "1000",
         "--kernels", "1"], capture_output=True, text=True, timeout=100, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2000 MiB" in done.stdout  # as large as its share, so the library is in front of the driver
    assert "ld.so" not in done.stderr


def test_the_link_is_kept_and_follows_the_installation_and_nobody_elses_place_is_used(tmp_path: Path) -> None:
    library = tmp_path / "my programs" / "libvgpu.so"
    library.parent.mkdir()
    library.write_text("one")
    environment, user = {"XDG_CACHE_HOME": str(tmp_path / "cache")}, os.getuid()
    by = loadable(library, environment, user or 0)
    assert (by.read_text(), by.name) == ("one", "libvgpu.so")
    assert " " not in str(by)
    assert loadable(library, environment) == by
    assert loadable(Path("/opt/libvgpu.so")) == Path("/opt/libvgpu.so")
    by.parent.unlink()
    by.parent.symlink_to(tmp_path)  # to something else
    assert loadable(library, environment).read_text() == "one"
    other = {"XDG_CACHE_HOME": str(tmp_path / "open")}
    (tmp_path / "open" / "pumice").mkdir(parents=True)
    (tmp_path / "open" / "pumice").chmod(0o777)
    with pytest.raises(Unavailable, match="no place for a link"):
        loadable(library, other, user=54321)  # whose none of them is
