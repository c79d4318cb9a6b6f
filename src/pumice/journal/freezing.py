"""An engine as bytes, exactly as it is, and back.

It is a pickle that names nothing but classes and functions of the pure packages, which touch no world (a contract of imports),
and a handful of containers: bytes of somebody else can make wrong values of it, and nothing else.
"""

from __future__ import annotations

import collections
import io
import pickle
import sys
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any

import msgspec
import numpy as np

from pumice.scheduler.engine import Engine

PURE = (
    "pumice.scheduler.", "pumice.claims.", "pumice.devices.", "pumice.model.", "pumice.wire.", "pumice.effects.", "pumice.ports.",
)  # fmt: skip
NOT_PURE = (".plugin.", ".node.")
"""Daemons and the node's side of a device type."""


class Unreadable(Exception):
    """The bytes are no engine of this version."""


def freeze(engine: Engine) -> bytes:
    """Return the engine as bytes, without the arrays that its placer works out again (``Placer.drop_arrays``): it goes on as
    the thawed one does where it has dropped them, too."""
    engine.placer.drop_arrays()
    return pickle.dumps(engine, 4)


def thaw(frozen: bytes) -> Engine:
    """Raises Unreadable."""
    try:
        found = _Reader(io.BytesIO(frozen)).load()
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    if not isinstance(found, Engine):
        raise Unreadable("no engine")
    return found


def _method(owner: Any, name: str) -> Any:
    """Return a bound method, which is what engines name in this way."""
    found = getattr(owner, name)
    if name.startswith("__") or not isinstance(found, MethodType) or not _is_pure(type(owner).__module__):
        raise Unreadable(f"it names {name!r}")
    return found


def _item(owner: Any, name: str) -> Any:
    """Return a member of an enumeration by name."""
    if not isinstance(owner, type) or not _is_pure(owner.__module__):
        raise Unreadable(f"it names {name!r}")
    return owner[name]  # type: ignore[index]


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    if not issubclass(kind, msgspec.Struct):
        raise Unreadable(f"it makes a {kind.__name__}")
    return kind(**values)


_reconstruct: Any = np.empty(0).__reduce__()[0]
BESIDE: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "getattr"): _method, ("_operator", "getitem"): _item, ("time", "perf_counter"): perf_counter,
    ("numpy", "dtype"): np.dtype, ("numpy", "ndarray"): np.ndarray, (_reconstruct.__module__, "_reconstruct"): _reconstruct,
    ("collections", "Counter"): collections.Counter, ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict, ("collections", "deque"): collections.deque,
    ("builtins", "int"): int, ("builtins", "list"): list, ("builtins", "dict"): dict, ("fractions", "Fraction"): Fraction,
    ("builtins", "set"): set, ("builtins", "frozenset"): frozenset, ("builtins", "range"): range,
    ("builtins", "slice"): slice,
    ("msgspec._utils", "rebuild"): _rebuild,
}  # fmt: skip


def _is_pure(module: str) -> bool:
    return f"{module}.".startswith(PURE) and not any(part in f"{module}." for part in NOT_PURE)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in BESIDE:
            return BESIDE[module, name]
        if _is_pure(module):
            found = super().find_class(module, name)
            plain = getattr(found, "__wrapped__", found)
            own = getattr(plain, "__module__", ""), getattr(plain, "__qualname__", "")
            if own == (module, name) and isinstance(plain, (type, FunctionType)) and "__" not in name:
                return found
        raise Unreadable(f"it names {module}.{name}")


def implementation() -> str:
    """The interpreter that engines are kept for: another one may not read them."""
    return f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
