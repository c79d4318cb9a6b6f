"""Keeps the files of CDI devices that runtimes read (NVIDIA k8s-device-plugin internal/cdi): by ``nvidia-ctk`` where it is
there, else
by ourselves."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pumice.apps.node.files import install_files
from pumice.apps.service.worker import once
from pumice.devices.nvidia_vgpu.node.answer import CONTROL_NODES
from pumice.devices.nvidia_vgpu.node.devices_file import EXTRAS, Driver, cards_file, extra_file, moved, trouble
from pumice.effects.vocabulary import InstallFile
from pumice.model.errors import BadInput, Unavailable
from pumice.node.protocol import Answer
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Slice
from pumice.wire import cdi

log = logging.getLogger("pumice.node")

TOOL: Final = "nvidia-ctk"
MOUNTED: Final = Path("/usrbin")
"""Where upstream's manifests mount the host's /usr/bin (Volcano pkg/scheduler/api/devices/nvidia/vgpu/metrics.go)."""
LIBRARIES: Final = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib")
PROGRAMS: Final = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
TOOL_SECONDS: Final = 30.0
TRIES: Final = 3
"""The device files of a slice may come a moment after it."""
PATIENCE: Final = 60.0
"""Seconds for which a container waits for the files: an unhealthy card may hang the driver."""

Seen = tuple[Sequence[CardFacts], Sequence[Slice]]


@dataclass(frozen=True, slots=True)
class CdiPlaces:
    """The paths of CDI files. ``root``: the folder of the files. ``hook``: the host's program that files name as hook.
    ``driver_root`` is the host's, ``inside`` where this process has it. ``features`` go to ``nvidia-ctk``."""

    root: Path = Path("/var/run/cdi")
    hook: str = "/usr/bin/nvidia-ctk"
    driver_root: str = "/"
    inside: Path = Path("/driver-root")
    dev_root: str = ""
    features: str = ""
    mounted: Path = MOUNTED


class CdiFiles:
    """Not for several threads at once. ``look`` asks the driver for cards and slices."""

    def __init__(self, places: CdiPlaces, look: Callable[[], Seen], classes: Collection[str] = (), pause: float = 0.5) -> None:
        self._places, self._look, self._classes, self._pause = places, look, classes, pause
        self._written: bytes = b""
        """The text that we would have written when the file was made last: it follows slices and driver."""
        self._names: frozenset[str] = frozenset()
        self._left: tuple[int, ...] = ()
        """State in which the file was left: whoever writes in it or puts another in its place changes that."""

    @property
    def path(self) -> Path:
        return self._places.root / cdi.file_name()

    @property
    def extras(self) -> tuple[str, ...]:
        """The classes beside the cards of which this machine has device files."""
        return tuple(of for of, _ in self._driver().extras)

    def refresh(self) -> None:
        """Write the file anew where slices or driver are others than they were, or it is gone. Raises Unavailable. While there is
        nothing to hand out there is no file: CDI takes one without devices for broken (pkg/cdi/spec.go)."""
        cards, slices = self._look()
        spec = cards_file(cards, slices, self._driver())
        text = cdi.render(spec)
        if text == self._written and self._found() == self._left:
            return
        self._names = self._write(spec, text) if spec.devices else self._remove()
        self._written, self._left = text, self._found()

    def ensure(self, names: Collection[str]) -> None:
        """Have these devices stand in the files before a container is told of them. Raises Unavailable."""
        if self._names.issuperset(names) and self._found() == self._left:
            return
        self._written = b""
        self.refresh()
        if missing := sorted(set(names) - self._names):
            raise Unavailable(f"{self.path} does not name {', '.join(missing)}")

    def _found(self) -> tuple[int, ...]:
        """Return what tells the file that lies there from every other; nothing where there is none."""
        with suppress(OSError):
            seen = self.path.lstat()
            return seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
        return ()

    def _write(self, ours: cdi.Specification, text: bytes) -> frozenset[str]:
        spec, tool = ours, self._tool()
        if tool is not None:
            text, spec = self._by(tool, [cdi.qualified(device.name) for device in ours.devices])
        names = {cdi.qualified(device.name) for device in spec.devices}
        driver = self._driver()
        contents = {cdi.file_name(): text}
        for of, _ in driver.extras:
            contents[cdi.file_name(of)] = cdi.render(extra_file(of, driver))
            names.add(cdi.qualified(cdi.ALL, of))
        try:
            self._places.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            install_files(InstallFile(str(self._places.root / name), content, 0o644) for name, content in contents.items())
        except (OSError, BadInput) as error:
            raise Unavailable(f"the CDI file cannot be written: {error}") from error
        log.info("wrote path=%s devices=%d by=%s", self.path, len(spec.devices), tool or "ourselves")
        return frozenset(names)

    def _remove(self) -> frozenset[str]:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"the CDI file cannot be removed: {error}") from error
        return frozenset()

    def _by(self, tool: Path, wanted: Collection[str]) -> tuple[bytes, cdi.Specification]:
        """Return what the tool makes, once it opens all that the driver shows."""
        for rest in reversed(range(TRIES)):
            text = self._generated(tool)
            spec = _read(text)
            if not (why := trouble(spec, wanted)):
                return text, spec
            if rest:
                time.sleep(self._pause)
        raise Unavailable(f"of what {tool} cdi generate wrote {why}")

    def _tool(self) -> Path | None:
        places = (self._places.mounted / TOOL, Path(self._places.hook).parent / TOOL)
        return next((path for path in places if path.is_file()), None)

    def _generated(self, tool: Path) -> bytes:
        places = self._places
        words = [str(tool), "cdi", "generate", "--format=json", f"--vendor={cdi.VENDOR}", f"--class={cdi.GPU}",
                 "--device-name-strategy=uuid", f"--nvidia-ctk-path={places.hook}"]  # fmt: skip
        elsewhere = places.driver_root.rstrip("/") != "" and places.inside.is_dir()
        if elsewhere:
            words.append(f"--driver-root={places.inside}")
        elif places.driver_root.rstrip("/"):
            words.append(f"--driver-root={places.driver_root}")
        if places.dev_root:
            words.append(f"--dev-root={places.dev_root}")
        words += [f"--feature-flag={flag.strip()}" for flag in places.features.split(",") if flag.strip()]
        try:
            ran = subprocess.run(words, capture_output=True, timeout=TOOL_SECONDS, check=False, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{tool} cdi generate: {error}") from error
        if ran.returncode != 0:
            said = ran.stderr.decode(errors="replace").strip().splitlines()
            raise Unavailable(f"{tool} cdi generate ended with {ran.returncode}: {said[-1] if said else 'without a word'}")
        if not elsewhere:
            return ran.stdout
        try:
            return json.dumps(moved(json.loads(ran.stdout), str(places.inside), places.driver_root), indent=2).encode()
        except ValueError as error:
            raise Unavailable(f"{tool} cdi generate wrote no JSON: {error}") from error

    def _driver(self) -> Driver:
        """Return what of the driver is there for containers: its libraries all end in the version of libcuda."""
        places = self._places
        here = places.inside if places.inside.is_dir() else Path(places.driver_root)
        nodes = Path(places.dev_root or "/")
        driver = Driver(
            places.driver_root.rstrip("/"), places.dev_root,
            control=tuple(node for node in CONTROL_NODES if (nodes / node[1:]).exists()),
            hook=places.hook if (here / places.hook.lstrip("/")).exists() or Path(places.hook).exists() else "",
            extras=tuple((of, found) for of in EXTRAS if of in self._classes and (found := tuple(_extra(nodes, of)))),
        )  # fmt: skip
        for folder in LIBRARIES:
            for versioned in sorted((here / folder).glob("libcuda.so.*.*")):
                version = versioned.name.removeprefix("libcuda.so.")
                libraries = sorted(path.name for path in (here / folder).glob(f"lib*.so.{version}"))
                links = tuple((f"/{folder}/{name}", f"/{folder}/{library}") for name, library in _links(here / folder, libraries))
                files = (*(f"/{folder}/{name}" for name in libraries),
                         *(f"/usr/bin/{name}" for name in PROGRAMS if (here / "usr/bin" / name).exists()))  # fmt: skip
                return replace(driver, files=files, links=links, folders=(f"/{folder}",))
        return driver


class KeptFiles:
    """The same off the loop, one look after the other."""

    def __init__(self, files: CdiFiles) -> None:
        self.files = files
        self._begun = False
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        """Refresh them. Raises Unavailable the first time: a plugin that has served goes on, and pods are told where they lack
        something."""
        try:
            await self._call(self.files.refresh)
        except Unavailable as error:
            if not self._begun:
                raise
            log.warning("the CDI devices are left as they are: %s", error)
        self._begun = True

    async def prepare(self, answer: Answer) -> None:
        """Have all devices that an answer names stand in the files. Raises Unavailable."""
        names = {*answer.cdi, *(name for text in answer.annotations.values() for name in text.split(","))}
        if names:
            await self._call(lambda: self.files.ensure(names))

    async def _call(self, work: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(PATIENCE), self._one_at_a_time:
                await once("cdi", work)
        except TimeoutError as error:
            raise Unavailable(f"{self.files.path} was not made within {PATIENCE:g} s: the driver does not answer") from error


def _links(folder: Path, libraries: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names by which programs ask for the libraries, as the driver's installer has left them."""
    for library in libraries:
        stem = library.partition(".so.")[0]
        for name in (f"{stem}.so.1", f"{stem}.so"):
            with suppress(OSError):
                if (folder / name).resolve().name == library:
                    yield name, library


def _extra(nodes: Path, of: str) -> Iterator[str]:
    for pattern in EXTRAS[of]:
        for path in sorted(nodes.glob(pattern[1:])):
            yield f"/{path.relative_to(nodes)}"


def _read(text: bytes) -> cdi.Specification:
    try:
        return cdi.parse(text)
    except BadInput as error:
        raise Unavailable(f"what nvidia-ctk wrote cannot be read: {error}") from error
