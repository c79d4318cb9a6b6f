"""Shares of Slurm's jobs: booked by the prolog of a node, given to each task, and freed by the epilog.

A job's share is a booking of the same book as a program's, of the id ``slurm-JOB``. Nothing on the node lives as long as a job
does: between two steps it has no process. So Slurm says when a share begins and ends, by prolog and epilog.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from pumice.adapters.bookings.book import JOB_PREFIX, Booking, holders, living, opened, used
from pumice.adapters.regular_files import content_of, open_folder
from pumice.local.containers import release
from pumice.local.place import Place
from pumice.local.request import AUTO, Request, parse_cards, parse_shares
from pumice.model.errors import BadInput, Unavailable
from pumice.wire import slurm

NOTES: Final = "slurm"
"""The folder beside the book with a file for each job that the prolog gave no share: why it has none; empty if it asks none."""
NOT_BOOKED: Final = "it is not booked. It was freed by hand, or this node's Prolog does not run `pumice slurm prolog`"
PROGRAMS: Final = "/usr/bin:/usr/local/bin:/opt/slurm/bin"
"""Where squeue is looked for: a prolog has no search path (slurm.conf(5))."""
SECONDS: Final = 20
TRIES: Final = 2

Squeue = Callable[[Sequence[str]], str]
"""Asks Slurm by these arguments of squeue, and returns what that printed. Raises Unavailable."""


def squeue(arguments: Sequence[str]) -> str:
    """Run squeue, a second time where the controller did not answer. Raises Unavailable."""
    program = shutil.which("squeue", path=os.environ.get("PATH") or PROGRAMS)
    if program is None:
        raise Unavailable(f"squeue is not in {os.environ.get('PATH') or PROGRAMS}; set PATH in the prolog's script")
    said = ""
    for _ in range(TRIES):
        try:
            done = subprocess.run([program, "--noheader", *arguments], capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
            continue
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.strip()
    raise Unavailable(f"squeue {' '.join(arguments)}: {said}")


def identity(job: str) -> str:
    """The id of a job's booking."""
    return f"{JOB_PREFIX}{job}"


def find(job: str, place: Place) -> Booking | None:
    """The share of a job; None where it has none."""
    return next((booking for booking in living(place.directory) if booking.job == job), None)


def asked(job: str, ask: Squeue = squeue) -> tuple[Request, str] | None:
    """Return what a job asks of this node, and its name; None where it asks no share. Raises BadInput, or Unavailable."""
    found = slurm.parse_jobs(ask(["--jobs", job, "--format", slurm.ASKED])).get(job)
    if found is None:
        raise Unavailable(f"Slurm's controller does not know job {job}")
    wanted = slurm.parse_gres(found.gres)
    if wanted is None:
        return None
    chosen = parse_cards(AUTO, None, None)
    request = parse_shares(str(wanted.memory), str(wanted.cores), chosen.cards, chosen.number, source=f"--gres={found.gres}")
    return request, found.name


def give_back(job: str, place: Place) -> None:
    """End a job's share, as far as nobody uses it: what a job left behind keeps it until that has ended, too."""
    if not place.used:
        return
    with opened(place.directory) as bookings:
        booking = next((other for other in bookings.all if other.job == job), None)
        if booking is not None:
            release(bookings, booking, used(booking) or bool(holders(booking)))
    with contextlib.suppress(OSError), open_folder(place.directory / NOTES) as folder:
        os.unlink(job, dir_fd=folder)


def end_forgotten(place: Place, node: str) -> bool:
    """End the shares of jobs that Slurm no longer has on this node, so that one whose epilog never ran blocks nobody for ever.

    Slurm is asked only where a share without a process stands in the book. Raises Unavailable.
    """
    jobs = [booking for booking in living(place.directory) if booking.job]
    idle = [booking for booking in jobs if not used(booking) and not holders(booking)]
    if not idle or not node:
        return False
    known = set(squeue(["--nodelist", node, "--format", slurm.NUMBER]).split())
    gone = [booking.job for booking in idle if booking.job not in known]
    for job in gone:
        give_back(job, place)
    return bool(gone)


# -- Jobs without a share ---------------------------------------------------------------------------------------------


def write_note(job: str, why: str, place: Place) -> None:
    """Leave word for the tasks of a job why it has no share; empty where it asks none.
    Others may write beside the book: nothing is followed out of it. Raises Unavailable."""
    place.prepare()
    try:
        with contextlib.suppress(FileExistsError):
            (place.directory / NOTES).mkdir(mode=0o755)
        with open_folder(place.directory / NOTES) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(job, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(job, flags, 0o644, dir_fd=folder), "w") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(why)
    except OSError as error:
        raise Unavailable(f"{place.directory / NOTES}: {error.strerror}") from error


def missing(job: str, place: Place, ask: Squeue = squeue) -> list[str]:
    """Return the lines that say why a job without a booking may not run; none where it asks no share. Slurm is asked only where
    this node's prolog left no word. Raises Unavailable."""
    try:
        return content_of(place.directory / NOTES / job, most=4000).decode("utf-8", "replace").splitlines()
    except OSError:
        pass
    try:
        return [NOT_BOOKED] if asked(job, ask) is not None else []
    except BadInput as error:
        return [str(error)]
