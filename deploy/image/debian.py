"""Debian's packages as files: which ones some ask for, and their content."""

from __future__ import annotations

import platform
import re
import subprocess
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Debian and Go name what Linux names


class Refused(Exception):
    """Why no image can be made, in a sentence."""


def architecture() -> str:
    """Of the packages that apt has here."""
    return _said("dpkg", "--print-architecture").strip()


def python() -> str:
    """Return python3's version name in this release, as python3.11."""
    found = re.search(r"PreDepends: (python3\.\d+)-minimal", _said("apt-cache", "depends", "python3-minimal"))
    if found is None:
        raise Refused("apt knows no python3-minimal here; `apt-get update` brings the lists, on Debian 12 or later")
    return found[1]


def needed(packages: Sequence[str], without: frozenset[str]) -> list[str]:
    """The packages and all that they ask for, as name=version, as if nothing were installed here."""
    empty = ["-o", "Dir::State::status=/dev/null", "-o", "APT::Install-Recommends=false"]
    lines = _said("apt-get", "-qq", "--print-uris", *empty, "install", *packages).splitlines()
    files = (line.split()[1].removesuffix(".deb") for line in lines if line.startswith("'"))
    found = (urllib.parse.unquote(file).split("_") for file in files)
    return sorted(f"{name}={version}" for name, version, _ in found if name not in without)


def fetch(wanted: Sequence[str], cache: Path) -> list[Path]:
    """Their files, in the order asked for. apt checks them against the signed lists."""
    cache.mkdir(parents=True, exist_ok=True)
    missing = [one for one in wanted if _cached(one, cache) is None]
    if missing:
        _said("apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", *missing, where=cache)
    files = {one: _cached(one, cache) for one in wanted}
    if gone := [one for one, file in files.items() if file is None]:
        raise Refused(f"{cache}: apt left no file of {gone[0]} there")
    return [file for file in files.values() if file is not None]


def unpack(file: Path, root: Path) -> None:
    """A package's files alone: its scripts are not run."""
    content = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE)
    tar = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)]
    subprocess.run(tar, stdin=content.stdout, check=True)
    if content.wait():
        raise Refused(f"{file}: dpkg-deb cannot read it")


def status(file: Path) -> str:
    """Its paragraph in /var/lib/dpkg/status, by which scanners know what an image holds."""
    return _said("dpkg-deb", "--field", str(file)).rstrip("\n") + "\nStatus: install ok installed\n"


def same_architecture(wheel: Path) -> str:
    """This machine's architecture, which must be the wheel's. Raises Refused."""
    here = architecture()
    arch = next((name for machine, name in ARCHITECTURES.items() if wheel.stem.endswith(machine)), "")
    if not arch:
        raise Refused(f"{wheel.name}: its name tells of no architecture; `make wheel` builds one that does")
    if arch != here:
        raise Refused(f"{wheel.name}: it is for {arch}, and this machine's packages are for {here} (its processor: "
                      f"{platform.machine()}); make the image on a machine of that kind")  # fmt: skip
    return arch


def _cached(wanted: str, cache: Path) -> Path | None:
    name, version = wanted.split("=", 1)
    return next(iter(cache.glob(f"{name}_{version.replace(':', '%3a')}_*.deb")), None)


def _said(*command: str, where: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    except FileNotFoundError:
        raise Refused(f"{command[0]} is not there: the image is made of Debian's packages, on Debian or Ubuntu") from None
    if done.returncode:
        raise Refused(f"{command[0]}: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout
