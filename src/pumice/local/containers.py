"""Edits of a container for its share: the library for all of its programs, limits that it cannot write, and the region.

One value says it (``edits``), and it is written as a CDI device for every engine that knows these, or as options of
``docker run``. The region has the same path in the container as outside, by which its processes are found.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from pumice.adapters.bookings.book import (
    CONTAINER,
    JOB,
    NAMED,
    BookedCard,
    Booking,
    Bookings,
    elsewhere,
    holders,
    opened,
    used,
)
from pumice.adapters.bookings.processes import FIRST_NAMESPACE, pid_namespace
from pumice.adapters.region.folders import page_beside
from pumice.adapters.regular_files import content_of, open_folder, replace_file
from pumice.local.permissions import refuse_stranger
from pumice.local.place import Place
from pumice.model.amount import MIB
from pumice.model.errors import BadInput, Unavailable
from pumice.wire import cdi, limits_page, variables
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.nvidia_vgpu import PodDevice

CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where engines look for CDI files (CDI, pkg/cdi/default-cache.go)."""
LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
PRELOAD: Final = "/etc/ld.so.preload"
LOADED: Final = Path(__file__).with_name("ld.so.preload")
"""The loader's list, which names LIBRARY: of the installation, as the library is. The book's folder is everybody's to write."""
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "bind")
_WRITABLE: Final = ("rw", "nosuid", "nodev", "bind")


def page_order(booking: Booking) -> list[tuple[BookedCard, PodDevice]]:
    """The cards of a booking as its container counts them: NVML's order, whatever order they were named in."""
    return sorted(booking.allocated, key=lambda pair: pair[0].index)


def write_page(booking: Booking) -> None:
    """Lay the limits page beside the region. Others may write in the folder of the book: nothing is followed out of it, and what
    is there already is never written to. Raises Unavailable."""
    page = page_beside(Path(booking.region))
    cards = tuple(GrantedCard(device.uuid, device.memory * MIB, device.cores) for _, device in page_order(booking))
    content = limits_page.render(LimitsPage(cards, booking.region, priority=booking.priority))
    try:
        with open_folder(page.parent.parent) as pages:
            os.mkdir(page.parent.name, 0o755, dir_fd=pages)
            with open_folder(page.parent.name, within=pages) as own:
                os.fchmod(own, 0o755)
                descriptor = os.open(page.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=own)
                with os.fdopen(descriptor, "wb") as file:
                    os.fchmod(descriptor, 0o644)
                    file.write(content)
    except OSError as error:
        raise Unavailable(f"{page}: the limits cannot be written: {error.strerror}") from error


def edits(booking: Booking, place: Place, library: Path, machine: Mapping[str, str]) -> cdi.Edits:
    """Return what a container of this share is given. ``machine``: the environment of a program on the emulated machine; empty on
    real cards, which the engine opens."""
    page = page_beside(Path(booking.region))
    uuids = ",".join(device.uuid for _, device in page_order(booking))
    env = {
        variables.SHARED_CACHE: booking.region,
        variables.CUDA_VISIBLE_DEVICES: uuids,
        variables.LOCK_DIRECTORY: str(place.neighbours),
        variables.TASK_PRIORITY: str(booking.priority),
        variables.SHARE: booking.id,
    }
    mounts = [
        cdi.Mount(str(library), LIBRARY, _READ_ONLY),
        cdi.Mount(str(LOADED), PRELOAD, _READ_ONLY),
        cdi.Mount(str(page), limits_page.PATH, _READ_ONLY),
        cdi.Mount(booking.region, booking.region, _WRITABLE),
        cdi.Mount(str(place.neighbours), str(place.neighbours), _WRITABLE),
    ]
    if place.machine is not None:
        folders = [machine["LD_LIBRARY_PATH"], *map(os.path.dirname, machine["LD_PRELOAD"].split(":"))]
        read = dict.fromkeys(folder for listed in folders for folder in listed.split(":") if folder)
        mounts = [cdi.Mount(str(place.machine), str(place.machine), _WRITABLE),
                  *(cdi.Mount(folder, folder, _READ_ONLY) for folder in read), *mounts]  # fmt: skip
        env |= {name: machine[name] for name in (variables.MACHINE, "LD_LIBRARY_PATH", "LD_PRELOAD")}
    return cdi.Edits(env=tuple(f"{name}={value}" for name, value in env.items()), mounts=tuple(mounts))


def cards(engine: str, booking: Booking) -> list[str]:
    """Return the options by which an engine opens the cards of a share, by NVIDIA's toolkit: Podman by its CDI file."""
    uuids = [device.uuid for _, device in page_order(booking)]
    if engine == "podman":
        return [word for uuid in uuids for word in ("--device", f"{cdi.TOOLKIT}={uuid}")]
    return ["--gpus", f'"device={",".join(uuids)}"']


def options(given: cdi.Edits) -> Iterator[str]:
    """Yield the same as options of ``docker run``, ``podman run`` and ``nerdctl run``."""
    for word in given.env:
        yield from ("--env", word)
    for mount in given.mounts:
        fields = ["type=bind", f"source={mount.host_path}", f"target={mount.container_path}"]
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([*fields, *(["readonly"] if "ro" in mount.options else [])])
        yield from ("--mount", text.getvalue())


def cards_of_toolkit(booking: Booking) -> cdi.Edits | None:
    """Return what opens the cards of a share, out of the CDI file that NVIDIA's toolkit has made; None where none names them."""
    for path in (path for folder in CDI_FOLDERS for path in sorted(folder.glob("*")) if path.suffix in (".yaml", ".json")):
        try:
            spec = cdi.parse(content_of(path))
        except (BadInput, OSError):
            continue
        named = {device.name: device.container_edits for device in spec.devices if spec.kind == cdi.TOOLKIT}
        found = [named.get(device.uuid) or named.get(str(card.index)) for card, device in page_order(booking)]
        if all(found):
            return sum(filter(None, found), spec.container_edits)
    return None


# -- CDI devices of shares with a name --------------------------------------------------------------------------------


def write_device(booking: Booking, given: cdi.Edits, folder: Path) -> None:
    """Write the CDI file of a share, by which an engine knows ``pumice.io/share=NAME``. Raises BadInput, also where the name is
    that of a share in another book (of an emulated machine, or another user's)."""
    path = folder / cdi.named_share_file_name(booking.id)
    spec = cdi.Specification(cdi.VERSION, f"{cdi.OWN_VENDOR}/{cdi.SHARE}", (cdi.Device(booking.id, given),))
    other = _region_in(path)
    if other not in ("", booking.region) and Path(other).exists():
        raise BadInput(f"{path}: a share of another book has this name, with the region {other}; choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, cdi.render(spec), 0o644)
    except OSError as error:
        raise BadInput(f"{path}: the CDI file cannot be written: {error.strerror}; run it as root, or name a folder with "
                       "--cdi-dir that the engine reads") from error  # fmt: skip


def _region_in(path: Path) -> str:
    """Return the region of the share that a CDI file of ours is for; empty where it says none."""
    try:
        spec = cdi.parse(content_of(path))
    except (BadInput, OSError):
        return ""
    prefix = f"{variables.SHARED_CACHE}="
    words = [word for device in spec.devices for word in device.container_edits.env]
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), "")


RUNS: Final = "its container runs; the share is free once that has ended"
UNSEEN: Final = "whether its container runs is not seen from here; run `pumice ps` where it was started"


def end(name: str, place: Place, user: int, folder: Path, force: bool = False) -> None:
    """End a share with a name. Where programs use it, it is kept until the last of them has ended, and needs ``force``; with it
    also a container's share ends that no process keeps, whatever holds its region. Raises BadInput."""
    with opened(place.directory) as bookings:
        booking = next((other for other in bookings.all if other.id == name), None)
        if booking is None:
            raise BadInput(f"{name}: there is no share of this name; `pumice share list` shows them")
        refuse_stranger(booking, user)
        if not booking.keeper or (booking.keeper != NAMED and not force):
            raise BadInput(f"{name} is no share with a name: {_how_it_ends(booking)}")
        unseen = elsewhere(booking) and pid_namespace() != FIRST_NAMESPACE
        kept = unseen or bool(holders(booking))
        if booking.keeper == CONTAINER and kept:
            raise BadInput(f"{name}: {UNSEEN if unseen else RUNS}")
        in_use = booking.keeper in (NAMED, JOB) and (kept or used(booking))
        if in_use and not force:
            raise BadInput(f"{name}: containers use it; stop them first, or --force: it is free then once the last has ended")
        remove_device(booking, folder)
        release(bookings, booking, bool(in_use))


def _how_it_ends(booking: Booking) -> str:
    """Say who has a share that is not ended by its name, and what ends it."""
    if booking.keeper == JOB:
        return f"{booking.who} has it, and `scancel {booking.job}` ends both; --force if Slurm no longer knows the job"
    pids = holders(booking)
    if not booking.keeper:
        return f"a program of `pumice run` has it ({booking.who}); it is free when that has ended"
    if booking.container and pids:
        return f"{booking.who} has it; stop that, as by `docker stop {booking.container[:12]}`, and it is free"
    if pids:
        return f"processes of a container have it ({', '.join(map(str, pids))}); it is free when they have ended"
    return "no process of its container is seen, but something holds it; --force ends it"


def release(bookings: Bookings, booking: Booking, in_use: bool) -> None:
    """End a share that something outside kept: at once, or, while it is in use, once the last of its processes has ended. A job's
    gives up its id then: the same job may be run again."""
    bookings.remove(booking.id)
    if in_use:
        bookings.add(structs.replace(booking, id=bookings.new_id() if booking.keeper == JOB else booking.id, keeper=CONTAINER))
    bookings.save()
    bookings.sweep()


def remove_device(booking: Booking, folder: Path) -> None:
    """Remove the CDI file of a share, if there is one and it is this share's. Raises BadInput."""
    path = folder / cdi.named_share_file_name(booking.id)
    if _region_in(path) not in ("", booking.region):
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{path}: the CDI file cannot be removed: {error.strerror}; run it as root") from error
