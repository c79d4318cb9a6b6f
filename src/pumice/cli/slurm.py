"""``pumice slurm``: the prolog, task prolog and epilog of a Slurm node, by which its jobs have shares of a card."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from pumice.cli import flags
from pumice.cli.run import cards_of, library, world
from pumice.cli.share_options import EMULATED
from pumice.model.errors import BadInput, PumiceError, Unavailable
from pumice.wire import slurm as words
from pumice.wire import variables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pumice.local.place import Place
    from pumice.local.request import Request

app = flags.App(group=True, help="Give Slurm's jobs shares of a card: for the scripts of Prolog, TaskProlog and Epilog.",
                  epilog="Example: pumice slurm prolog")  # fmt: skip
DRAINS = 1
"""The exit code for which Slurm drains the node and has the job run elsewhere (slurm.conf(5))."""


@app.command(epilog="Example: pumice slurm prolog  # in the script that is Prolog")
def prolog(emulated: EMULATED = None) -> None:
    """Book the share that a job asks of this node. For Slurm's Prolog, as root. A share that cannot be had fails the job, with
    the reason in its output; without a driver the node is drained."""
    from pumice.local import slurm

    job, present = _job(), _of_the_node(os.environ)
    try:
        _, place, nvml = world(emulated, present)
        slurm.give_back(job, place)  # it ran here before, and its epilog did not
        try:
            wanted = slurm.asked(job)
            if wanted is None:
                with contextlib.suppress(Unavailable):  # a damaged book is no reason to refuse such a job
                    slurm.write_note(job, "", place)
            else:
                library()
                _book(job, wanted, place, nvml)
        except BadInput as error:
            slurm.write_note(job, str(error), place)
            print(f"pumice slurm prolog: job {job}: {error}", file=sys.stderr)
    except PumiceError as error:
        print(f"pumice slurm prolog: job {job}: {error}", file=sys.stderr)
        raise SystemExit(DRAINS) from error


def _book(job: str, wanted: tuple[Request, str], place: Place, nvml: Path | None) -> None:
    from pumice.adapters.bookings.book import JOB
    from pumice.local import slurm, start
    from pumice.local.allocator import Refused

    request, name = wanted
    user = os.environ.get(words.JOB_USER, "")
    command = ["slurm", "job", job, name]
    with cards_of(nvml) as cards:
        for last in (False, True):
            try:
                begun = start.book(request, command, place, cards, keeper=JOB, name=slurm.identity(job),
                                   user=int(user) if user.isdigit() else -1)  # fmt: skip
                break
            except Refused:
                if last or not slurm.end_forgotten(place, os.environ.get(words.NODE_NAME, "")):
                    raise
    if begun.contested:
        from pumice.local import arbiter  # rarely needed

        arbiter.start(place.directory)


@app.command("task-prolog", epilog="Example: pumice slurm task-prolog  # in the script that is TaskProlog")
def task_prolog(emulated: EMULATED = None) -> None:
    """Have a task run within its job's share. For Slurm's TaskProlog: prints the lines by which Slurm changes the task's
    environment. Exit code 2: the job asks a share and has none, and the task does not start."""
    from pumice.adapters.bookings.processes import put_mark
    from pumice.local import slurm, start

    job, before = _job(), dict(os.environ)
    inside, place, _ = world(emulated, _of_the_node(before))
    booking = slurm.find(job, place)
    if booking is None:
        if said := slurm.missing(job, place):
            print(words.render_words([f"pumice: job {job} has no share on this node: {said[0]}", *said[1:]]), end="", flush=True)
            raise SystemExit(2)
        return
    after = start.environment(booking, library(), place.neighbours, inside)
    kept = {name: value for name, value in before.items() if name in _LEADING and name not in after}
    text = words.render_task(before, after | kept)
    task = os.environ.get(words.TASK_PID, "")
    if task == str(os.getppid()):  # before it becomes the program: what it starts is the job's, whatever its environment says
        put_mark(booking.pid, booking.start, on=int(task))
    print(text, end="")


@app.command(epilog="Example: pumice slurm epilog  # in the script that is Epilog")
def epilog(emulated: EMULATED = None) -> None:
    """Free the share of a job that has ended. For Slurm's Epilog, as root."""
    from pumice.local import slurm

    job = _job()
    try:
        _, place, _ = world(emulated, _of_the_node(os.environ))
        slurm.give_back(job, place)
    except PumiceError as error:
        print(f"pumice slurm epilog: job {job}: {error}", file=sys.stderr)
        raise SystemExit(DRAINS) from error


_LEADING = frozenset((variables.RUN_DIR, variables.MACHINE, variables.SHARE))
"""Variables that lead a command to a book. A job's may come from where it was submitted; its node's prolog never saw them."""


def _of_the_node(present: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in present.items() if name not in _LEADING}


def _job() -> str:
    job = os.environ.get(words.JOB_ID, "")
    if not job.isdigit():
        raise BadInput(f"{words.JOB_ID} is not set: Slurm starts this for its jobs; in a shell use `pumice run`")
    return job
