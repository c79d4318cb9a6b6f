"""Our errors, one tree. Its text is one line that names what, where and the nearest right thing.

    PumiceError
    ├── BadInput                what a person wrote is wrong; exit code 2 of a command
    │   └── Refused                 a share that cannot be given (local)
    ├── Unavailable             something outside did not answer; later may help
    │   ├── CardsUnavailable        the cards' driver (ports)
    │   ├── CutRefused              the driver cuts no slices now (ports)
    │   │   ├── NoRights                it never will for this process (ports)
    │   │   └── NpuRefused              the NPU's driver, with its code (ports)
    ├── ApiError                the API server refused, or did not answer (ports)
    │   └── NotTaken                and will not by waiting alone (apps)
    │       └── GroupNotTaken           the PodGroup of a Job
    ├── BadAnswer               what a server sent is no HTTP/1.1 (adapters)
    ├── BadRegion               a shared region that is none (ports)
    ├── CudaError               a call of the CUDA driver failed (adapters)
    ├── MachineError            the emulated machine refused (machine)
    └── PluginError             a device plugin answers the kubelet with an error (adapters)

Refusals that are part of a decision are values, not errors (``refusal.py``). The embedded cluster stands apart, with errors
of its own.
"""

from __future__ import annotations

from typing import Any


class PumiceError(Exception):
    """Root of our errors; its text is one line that names what, where and the nearest right thing."""


class BadInput(PumiceError):
    """Data written by a person is wrong: file, line or field, and what would be right. Exit code 2 of a command."""


class Unavailable(PumiceError):
    """Something outside did not answer or is not there; trying again later can help."""


# -- The nearest right word to one that means nothing ----------------------------------------------------------------


def nearest(word: str, known: Any) -> str:
    """``; did you mean 'x'?`` when something known is near, else nothing."""
    found = nearest_word(word, known)
    return f"; did you mean {found!r}?" if found else ""


def nearest_word(word: str, known: Any) -> str:
    """Return the nearest known word; empty where none is near."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    folded = [k for k in known if k.lower() == word.lower()] or close
    return folded[0] if folded else ""
