"""Writes the image of the daemons as an OCI layout, from Debian's packages and our wheel, without Docker and without root.

    make image        # or: python3 deploy/image/build.py dist/pumice-*.whl --output dist/pumice-image.tar

Needs apt, dpkg and pip. The same packages and the same wheel make the same bytes, wherever and whenever.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from deploy.image import contents, debian, oci  # noqa: E402
from deploy.image.debian import Refused  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pumice" / "image"
EMPTY = ("dev", "proc", "run", "sys", "tmp")  # folders that a runtime mounts at
NEWEST_GLIBC = 36  # of Debian 12: wheels may ask for as much
EVERY_MODULE = """
import importlib, pkgutil
for name in ("pumice", "pumice_jobs"):
    for one in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        # the screen of `pumice top` is of an extra that no daemon's image has: it prints tables there
        if not one.name.endswith(".__main__") and not one.name.startswith("pumice.cli.screen."):
            importlib.import_module(one.name)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the image of the daemons as an OCI layout in a tar file.")
    parser.add_argument("wheel", type=Path, nargs="?", help="of `make wheel`")
    parser.add_argument("--output", type=Path, default=Path("dist/pumice-image.tar"), help="default: %(default)s")
    parser.add_argument("--dockerfile", action="store_true", help="print the Dockerfile that says the same")
    given = parser.parse_args(arguments)
    try:
        if given.dockerfile:
            print(contents.read("python3.11").dockerfile(version()), end="")
        elif given.wheel is None:
            raise Refused("name the wheel that goes into the image; `make wheel` builds it")
        else:
            made = build(given.wheel)
            made.write(given.output)
            print(f"{given.output}: {made.name} {made.manifest}, {given.output.stat().st_size >> 20} MiB")
    except Refused as refused:
        print(f"build.py: {refused}", file=sys.stderr)
        return 2
    return 0


def build(wheel: Path) -> oci.Image:
    """Raises Refused."""
    if not wheel.is_file():
        raise Refused(f"{wheel}: there is no such wheel; `make wheel` builds it")
    arch = debian.same_architecture(wheel)
    said = contents.read(debian.python())
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "root")
        packages = debian.fetch(debian.needed(said.packages, said.without), CACHE)
        _fill(root, said, packages, _wheels(wheel, said, Path(directory, "wheels")))
        _compile(root, said)
        _check(root, said)
        ours = (f"{said.home}/pumice", "usr/bin/pumice")
        beneath = _layer(root, moment, lambda path: not path.startswith(ours))
        layers = [beneath, _layer(root, moment, lambda path: path.startswith(ours))]
    image = said.said["image"]
    labels = {"org.opencontainers.image.title": "Pumice", "org.opencontainers.image.version": version(),
              "org.opencontainers.image.licenses": "Apache-2.0"}  # fmt: skip
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    return oci.image(f"docker.io/{image['name']}:{version()}", arch, layers, said.config, created, labels)


def version() -> str:
    (found,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/pumice/__init__.py").read_text("utf-8"), re.M)
    return str(found)


def _wheels(ours: Path, said: contents.Contents, folder: Path) -> list[Path]:
    """Ours and what its extra asks for, in the versions that the tests run with, for the image's own Python."""
    machine = next(name for name in debian.ARCHITECTURES if ours.stem.endswith(name))
    number = said.python.removeprefix("python")
    platforms = [f"manylinux_2_{least}_{machine}" for least in range(5, NEWEST_GLIBC + 1)] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
               f"--dest={folder}", f"--python-version={number}", "--implementation=cp", f"--abi=cp{number.replace('.', '')}",
               "--abi=abi3", "--abi=none", *(f"--platform={one}" for one in platforms),
               f"--constraint={ROOT / 'constraints.txt'}", f"{ours}[{said.said['python']['extra']}]"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"pip: {' '.join(done.stderr.split())[-300:]}")
    return sorted(folder.glob("*.whl"))


def _fill(root: Path, said: contents.Contents, packages: Sequence[Path], wheels: Sequence[Path]) -> None:
    root.mkdir()
    for package in packages:
        debian.unpack(package, root)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as files:
            files.extractall(root / said.home)
    (root / "usr/bin/python3").symlink_to(said.python)
    for path, text in {
        "etc/passwd": said.passwd, "etc/group": said.group,
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "usr/bin/pumice": (contents.HERE / "pumice").read_text(),
        "var/lib/dpkg/status": "\n".join(map(debian.status, packages)),
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "usr/bin/pumice").chmod(0o755)
    for path in list(_below(root)):
        if (path.is_symlink() or not path.is_dir()) and not said.holds(str(path.relative_to(root))):
            path.unlink()


def _compile(root: Path, said: contents.Contents) -> None:
    """Byte code for a root that nobody may write to. By the image's interpreter, in one order, so that it is always the same."""
    compiling = ("-m", "compileall", "-q", "-s", str(root), "-p", "/", "--invalidation-mode=unchecked-hash")
    for folder in (f"usr/lib/{said.python}", said.home):
        _python(root, said, *compiling, str(root / folder))


def _check(root: Path, said: contents.Contents) -> None:
    """Check that nothing needed was left out: each library is there that another asks for, and each module that one of ours
    imports."""
    files = [path for path in _below(root) if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    said_of_all = subprocess.run(["objdump", "-p", *map(str, files)], capture_output=True, text=True, check=True).stdout
    names = {path.name for path in _below(root)}
    if gone := sorted(name for name in set(re.findall(r"^ +NEEDED +(\S+)", said_of_all, re.M)) if name not in names):
        raise Refused(f"contents.toml: {', '.join(gone)} is asked for and not in the image")
    _python(root, said, "-c", EVERY_MODULE)


def _python(root: Path, said: contents.Contents, *arguments: str) -> None:
    done = subprocess.run(**interpreter(root, said, *arguments), capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"the image's python: {(done.stdout + done.stderr).strip()[-600:]}")


def interpreter(root: Path, said: contents.Contents, *arguments: str) -> dict[str, Any]:
    """Return how to run the interpreter of the image that is unpacked in ``root``, by its own loader and libraries."""
    (loader,) = [*root.glob("lib64/ld-linux*.so.2"), *root.glob("lib/ld-linux-aarch64.so.1")]
    libraries = ":".join(str(path) for path in [*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")])
    environ = {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(root / said.home), "PYTHONHASHSEED": "0"}
    return {"args": [str(loader), "--library-path", libraries, str(root / f"usr/bin/{said.python}"), "-S", "-B", *arguments],
            "env": environ}  # fmt: skip


def _layer(root: Path, moment: int, wanted: Callable[[str], bool]) -> oci.Layer:
    layer = oci.Layer(moment)
    for path in _below(root):
        name = str(path.relative_to(root))
        if not wanted(name):
            continue
        if path.is_symlink():
            layer.link(name, os.readlink(path))
        elif not path.is_dir():
            layer.file(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
        elif any(path.iterdir()) or name in EMPTY:
            layer.folder(name, 0o1777 if name == "tmp" else 0o755)
    return layer


def _below(root: Path) -> Iterator[Path]:
    """Folders before what is in them, by name."""
    return iter(sorted(root.rglob("*")))


if __name__ == "__main__":
    sys.exit(main())
