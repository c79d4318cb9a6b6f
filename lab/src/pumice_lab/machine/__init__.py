"""The emulated machine, Python side: describing one, making it, changing it and asking what happened on it.

The cards themselves are presented by ``libnvidia-ml.so.1`` and ``libcuda.so.1`` (``lab/native``); everything that a
driver decides is decided there. This package fills and reads their shared state. Its parts are loaded when they are first
asked for: a program that starts on a machine needs none of what makes one.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice_lab.machine.directory import Machine, RaisedXid, SetFault, create, open_machine
    from pumice_lab.machine.model import CardModel, FaultModel, MachineModel, machine_of, preset
    from pumice_lab.machine.model_file import load_model
    from pumice_lab.machine.native import MachineError, library_dir, nvml_library
    from pumice_lab.machine.witness import Share, Witness

__all__ = [
    "CardModel",
    "FaultModel",
    "Machine",
    "MachineError",
    "MachineModel",
    "RaisedXid",
    "SetFault",
    "Share",
    "Witness",
    "create",
    "library_dir",
    "load_model",
    "machine_of",
    "nvml_library",
    "open_machine",
    "preset",
]

_PARTS = {
    "directory": ("Machine", "RaisedXid", "SetFault", "create", "open_machine"),
    "model": ("CardModel", "FaultModel", "MachineModel", "machine_of", "preset"),
    "model_file": ("load_model",),
    "native": ("MachineError", "library_dir", "nvml_library"),
    "witness": ("Share", "Witness"),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PART_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PART_OF[name]}"), name)
