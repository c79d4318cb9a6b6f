"""What both wheels have in common (setup.py, lab/setup.py): native libraries are built into the package, the commit is noted, and
the platform is named by what the libraries ask for."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
# What every Linux has beside the C library's own name, by PEP 599; a library that needs more is for this machine alone.
EVERYWHERE = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"}
LOADER = re.compile(r"ld-linux[-\w]*\.so\.\d")
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF's header


def run(package, source, target, prefix):
    """Set up ``package``, whose sources lie in ``source``. Its libraries are installed by native/Makefile's ``target`` into the
    folder that the variable ``prefix`` names."""

    class BuildWithNative(build_py):
        """Beside the sources when these are used in place, else into the wheel alone."""

        def run(self):
            super().run()
            place = (source if self.editable_mode else Path(self.build_lib).resolve()) / package / "_native"
            make = ["make", "-C", str(ROOT / "native"), target, f"{prefix}={place}", f"BUILD={build_folder()}"]
            subprocess.run(make, check=True)
            if not self.editable_mode:  # sources in use change after this
                (place.parent / "built.json").write_text(json.dumps({"commit": commit(), "at": moment()}))

    class PlatformWheel(bdist_wheel):
        """Any Python, no ABI of it, and the oldest Linux that has what the libraries ask for."""

        def get_tag(self):
            built = [Path(self.get_finalized_command("build_py").build_lib), source]
            libraries = next((found for folder in built if (found := files(folder / package / "_native"))), None)
            if libraries is None:  # asked before they are built, for an installation in place: that is for this machine alone
                return super().get_tag()
            return "py3", "none", tag(libraries)

    setup(distclass=ForOnePlatform, cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel})


class ForOnePlatform(Distribution):
    def has_ext_modules(self):
        return True


def commit():
    """Of the sources; empty where they are no working tree of their own."""
    try:
        said = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    place, _, found = said.stdout.strip().partition("\n")
    return found if said.returncode == 0 and Path(place) == ROOT else ""


def moment():
    """When this is built, as builds that repeat say it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))


def build_folder():
    """Below native/: one for each architecture but our own."""
    compiler = os.environ.get("CC") or "cc"
    target = subprocess.run([compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    return "build" if target.startswith(platform.machine()) else f"build/{target}"


def files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def tag(libraries):
    """The platform tag (PEP 600) of these ELF files: their architecture, and the newest C library that one of them asks for."""
    architectures, newest = set(), (2, 17)
    for library in libraries:
        said = subprocess.run(["objdump", "-p", str(library)], check=True, capture_output=True, text=True).stdout
        architectures.add(ARCHITECTURES[int.from_bytes(library.read_bytes()[18:20], "little")])
        newest = max([newest, *(tuple(map(int, at.split("."))) for at in re.findall(r"GLIBC_(2(?:\.\d+)+)", said))])
        for name in re.findall(r"NEEDED +(\S+)", said):
            if name not in EVERYWHERE and not LOADER.fullmatch(name):
                raise SystemExit(f"{library}: it needs {name}, which not every Linux has; no wheel is made")
    (architecture,) = architectures
    older = f".manylinux2014_{architecture}" if newest[:2] == (2, 17) else ""
    return f"manylinux_{newest[0]}_{newest[1]}_{architecture}{older}"
