"""Standard streams that take whatever a command prints, and one line for what the operating system refuses.

A terminal may know no blocks, a reader may have left, a disk may be full, and whoever started us may have closed a stream:
none of it is for the commands to think of.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from pumice.model.errors import BadInput

LOOKS_LIKE = {"█": "#", "░": ".", "…": "~", "×": "x", "°": "o", "─": "-", "│": "|", "•": "*", "–": "-", "—": "-", "’": "'"}
"""Of one column each, so that tables stay straight."""
PIECE, LONGEST_ROW = 2**20, 1000
"""Letters that are read at a time of a table, and that each of its rows may have on average."""
HANDLER = "pumice.lookalikes"


def prepare() -> None:
    """Open what was closed, and let what an encoding has no letter for be printed by what looks like it."""
    import codecs

    codecs.register_error(HANDLER, _lookalikes)
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if not _open(descriptor):  # the next file or socket would be taken for it
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (to the end)
        stream = getattr(sys, name)
        if mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def read(path: Path) -> str:
    """Return the text of a file, or of standard input for -. Raises BadInput with the reason."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def read_rows(path: Path, most: int) -> str:
    """Return the text of a table as ``read`` does. One with more rows is refused by what was read until then: it is never whole
    in memory."""
    pieces: list[str] = []
    lines = letters = 0
    try:
        with contextlib.nullcontext(sys.stdin) if str(path) == "-" else path.open(encoding="utf-8") as file:
            while piece := file.read(PIECE):
                pieces.append(piece)
                lines, letters = lines + piece.count("\n"), letters + len(piece)
                if lines > most + 1 or letters > most * LONGEST_ROW:
                    raise BadInput(f"{path}: more than {most:,} rows; give fewer of them")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    return "".join(pieces)


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> BadInput:
    return BadInput(f"{path}: {error.strerror if isinstance(error, OSError) else 'no UTF-8 text'}")


def _open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _lookalikes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LOOKS_LIKE.get(letter) or _escaped(letter) for letter in error.object[error.start : error.end]), error.end


def _escaped(letter: str) -> str:
    """As JSON has it, so that JSON stays JSON."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def said_by_the_system(error: OSError) -> str:
    """The operating system's refusal, in one line."""
    words = error.strerror or " ".join(str(error).split()) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {words}" if isinstance(error.filename, str | bytes) else words


def give_up_output() -> None:
    """Drop output that could not be written, so that the interpreter does not try again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()


def end_by(number: signal.Signals) -> NoReturn:
    """End as a program that this signal ended, so that a shell's loop or pipe around it knows."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)
