"""``pumice docker run``: a container with a share of a card, on this machine, without a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pumice.adapters.bookings.book import ID_FILE
from pumice.cli import flags
from pumice.cli.run import TOOK
from pumice.cli.share_options import CORES, EMULATED, GPU, GPUS, MEMORY, PRIORITY, book, request_of
from pumice.model.errors import BadInput, PumiceError

if TYPE_CHECKING:
    from pumice.local.request import Request

app = flags.App(group=True, help="Run containers with a share of a card, by Docker, Podman or nerdctl.",
                  epilog="Example: pumice docker run --memory 3G --cores 50 IMAGE python train.py")  # fmt: skip

ENGINES: Final = ("docker", "podman", "nerdctl")
CALLED: Final = "pumice docker run"
NO_ENGINE: Final = (
    "no docker, podman or nerdctl on the search path; install one of them, name one with --engine, or start the program without "
    "a container by `pumice run`"
)
SWITCHES: Final = frozenset((
    "--detach", "--disable-content-trust", "--env-host", "--help", "--http-proxy", "--init", "--interactive", "--no-healthcheck",
    "--no-hostname", "--no-hosts", "--oom-kill-disable", "--passwd", "--privileged", "--publish-all", "--quiet", "--read-only",
    "--read-only-tmpfs", "--replace", "--rm", "--rmi", "--rootfs", "--sig-proxy", "--tls-verify", "--tty", "--unsetenv-all",
    "--use-api-socket",
))  # fmt: skip
"""Options of `docker run` and `podman run` that take no value of their own, so that the next word may be the image."""
SHORT_SWITCHES: Final = "ditPq"
"""Their short forms, of which several may stand in one word, with one at its end that takes a value: `-dp 80:80`, `-itm8G`."""
OURS: Final = ("--cores", "--gpu", "--priority", "--emulated", "--engine")
REFUSED: Final = {
    "--cidfile": "pumice keeps that file, to see when the container has ended",
    "--gpus": "pumice opens the cards of the share; write how many before the options of the engine",
    "--cgroups": "pumice sees by the container's cgroup when it has ended",
    "--restart": "the share ends with the container; `pumice share create` makes one that outlasts it",
}
ELSEWHERE: Final = ("tcp:", "ssh:", "http:", "https:")


def ours_first(command: flags.Command, words: list[str]) -> list[str]:
    """Our options stand first: from the first word on that is none of them, all is the engine's."""
    options = {name: one for one in command.parameters for name in one.names}
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if words[at] in ("-h", "--help"):
            return words
        if name not in options:
            break
        bare = options[name].spec.bare and (at + 1 == len(words) or words[at + 1].startswith("-"))
        at += 1 if equals or bare else 2
    return words if at > len(words) or words[at : at + 1] == ["--"] else [*words[:at], "--", *words[at:]]


@app.command(
    "run", program=True, rewrite=ours_first,
    epilog="Examples: pumice docker run --memory 3G --cores 50 IMAGE python train.py"
    ";  pumice docker run --memory 25% --gpu auto --engine podman IMAGE  # a quarter of the card where most is free"
    ";  pumice docker run --memory 3G -- --memory 8G IMAGE  # 3 GiB of the GPU, and 8 GiB of RAM for the engine")  # fmt: skip
def run(
    context: flags.Context,
    memory: MEMORY = None,
    cores: CORES = "0",
    gpu: GPU = None,
    gpus: GPUS = None,
    priority: PRIORITY = "1",
    emulated: EMULATED = None,
    engine: Annotated[str, flags.Option(
        metavar="PROGRAM", show_default=False, help="docker, podman or nerdctl, or its path (default: the first that is there).")
    ] = "",
) -> None:  # fmt: skip
    """Run a container with a share of a card. Options of pumice stand first; what follows them goes to `docker run` as it is. The
    share is kept until the container has ended. Exit code and signals are the engine's; 2: the share cannot be had."""
    try:
        words = context.rest
        if not words:
            took = f"{TOOK.format(emulated)}; " if emulated else ""
            raise BadInput(f"{took}no image; write it last, as in: {CALLED} --memory 3G -- IMAGE")
        before = dict(os.environ)
        program = find_engine(engine, before)
        check(words, memory is not None)
        _run(request_of(memory, cores, gpu, gpus, priority), program, words, emulated, before)
    except PumiceError as error:
        print(f"{CALLED}: {error}", file=sys.stderr)
    raise SystemExit(2)


def _run(request: Request, program: str, words: Sequence[str], emulated: str | None, before: Mapping[str, str]) -> None:
    from pumice.local import containers, start

    name = os.path.basename(program)
    begun, place, given = book(CALLED, request, [name, "run", *words], emulated, before)
    opening = [] if place.machine is not None else containers.cards(name, begun.booking)
    identity = str(Path(begun.booking.region).with_name(ID_FILE))
    arguments = [program, "run", "--cidfile", identity, *containers.options(given), *opening, *words]
    try:
        start.become_engine(begun, arguments, place, before)
    except OSError as error:
        raise BadInput(f"{program}: {error.strerror or 'cannot be run'}") from error


def find_engine(named: str, present: Mapping[str, str]) -> str:
    """Return the engine's program. Raises BadInput where there is none, or it starts containers on another machine."""
    path = present.get("PATH", os.defpath)
    found = next((there for one in ([named] if named else ENGINES) if (there := shutil.which(one, path=path))), "")
    if not found:
        raise BadInput(f"--engine {named}: there is no such program" if named else NO_ENGINE)
    if os.path.basename(found) not in ENGINES:
        raise BadInput(f"--engine {named}: must be {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        if present.get(variable, "").startswith(ELSEWHERE):
            where = f"{variable}={present[variable]}"
            raise BadInput(f"{where}: that engine starts containers elsewhere; shares are of this machine's cards")
    return found


def check(words: Sequence[str], with_memory: bool) -> None:
    """Raises BadInput where the engine's options leave no room for ours, or hold one that was meant for us."""
    given = list(_options(words))
    for name, value in given:
        if name in OURS:
            raise BadInput(f"{name} stands after an option of the engine; write it before")
        if name in REFUSED and (name, value) != ("--restart", "no"):
            raise BadInput(f"{name}: {REFUSED[name]}")
        if name in ("--memory", "-m") and not with_memory:
            raise BadInput(f"{name} {value}: here it is RAM, by the engine; memory of the card stands first: {CALLED} --memory …")


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """The options of the engine before the image, each with its value."""
    found: list[tuple[str, str]] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append((name, value if equals or name in SWITCHES or not rest else rest.pop(0)))
            continue
        letters = word[1:]
        switches = letters[: len(letters) - len(letters.lstrip(SHORT_SWITCHES))]
        found += [(f"-{letter}", "") for letter in switches]
        last, value = letters[len(switches) : len(switches) + 1], letters[len(switches) + 1 :].removeprefix("=")
        if last and last != "=":
            found.append((f"-{last}", value or (rest.pop(0) if rest else "")))
    return found
