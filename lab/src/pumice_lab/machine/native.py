"""Finding and calling the C libraries that present a machine."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path

from pumice.adapters.native import loadable
from pumice.model.errors import PumiceError


class MachineError(PumiceError):
    """Something about a machine directory or its libraries that keeps it from being used; one sentence for people."""


_NAMES = ("libnvidia-ml.so.1", "libcuda.so.1")


def library_dir() -> Path:
    """The folder with ``libnvidia-ml.so.1`` and ``libcuda.so.1`` of the emulated machine, for ``LD_LIBRARY_PATH``.

    ``PUMICE_MACHINE_LIBRARIES`` overrides it (a sanitizer build). Raises ``MachineError`` when they are not built.
    """
    package = Path(__file__).resolve().parents[1]
    candidates = [package / "_native/machine", package.parents[2] / "native/build/machine"]
    if override := os.environ.get("PUMICE_MACHINE_LIBRARIES"):
        candidates = [Path(override)]
    for folder in candidates:
        if all((folder / name).exists() for name in _NAMES):
            return folder
    raise MachineError(
        f"{candidates[0]}: the emulated machine's libraries are not there; build them with `make native`"
    )


def library_path(cuda: int) -> str:
    """Return the front of ``LD_LIBRARY_PATH`` of a program on a machine whose driver knows CUDA ``cuda`` (12020 is 12.2).

    A program that asks ``dlsym`` must not find names that came after its driver: ``driver-VERSION/`` folders hold the
    library with the names known up to that version, and the oldest that still knows ``cuda`` is put in front.
    """
    folder = library_dir()
    older = sorted(
        (int(found.name.removeprefix("driver-")), found)
        for found in folder.glob("driver-[0-9]*")
        if found.name.removeprefix("driver-").isdigit()
    )
    front = [str(found) for version, found in older if version >= cuda][:1]
    return ":".join(str(loadable(Path(path))) for path in (*front, str(folder), str(folder / "runtime")))


def runtime_libraries() -> str:
    """Return the ``LD_PRELOAD`` of a program on a machine, so that it loads the machine's CUDA runtime and CUPTI by name.

    NVIDIA's would refuse the machine's driver, and wheels as PyTorch's name their folder by an RPATH, which comes before
    ``LD_LIBRARY_PATH``; but the loader opens no library whose SONAME is there already.
    """
    return ":".join(str(loadable(found)) for found in sorted((library_dir() / "runtime").glob("lib*.so.*")))


@cache
def functions() -> frozenset[str]:
    """The functions of CUDA and NVML that a program on a machine can call."""
    texts = [(library_dir() / name).read_bytes() for name in _NAMES]
    return frozenset(name.decode() for text in texts for name in re.findall(rb"(?<=\0)(?:cu|nvml)[A-Z]\w{2,58}(?=\0)", text))


@cache
def nvml_library() -> ctypes.CDLL:
    """The machine's NVML, loaded for everybody in this process.

    nvidia-ml-py's own ``CDLL("libnvidia-ml.so.1")`` then finds this one, because the loader knows libraries by SONAME.
    """
    return _load(ctypes.RTLD_GLOBAL)


@cache
def control() -> ctypes.CDLL:
    """The machine's library for the ``pumice_machine_*`` calls of ``machine/machine.h``, with their prototypes."""
    library = _load(ctypes.RTLD_LOCAL)
    u64, text = ctypes.c_uint64, ctypes.c_char_p
    library.pumice_machine_raise_xid.argtypes = (text, ctypes.c_uint, u64)
    library.pumice_machine_set_fault.argtypes = (text, text, ctypes.c_int, u64, u64, u64, ctypes.c_int)
    library.pumice_machine_clear_faults.argtypes = (text,)
    library.pumice_machine_advance_ns.argtypes = (text, u64)
    library.pumice_machine_reap.argtypes = (text,)
    return library


def _load(mode: int) -> ctypes.CDLL:
    path = library_dir() / _NAMES[0]
    try:
        return ctypes.CDLL(str(path), mode=mode, use_errno=True)
    except OSError as error:
        raise MachineError(f"{path}: the emulated machine's library cannot be loaded: {error}") from None
