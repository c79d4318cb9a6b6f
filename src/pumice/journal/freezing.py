"""An engine as bytes, exactly as it is, and back.

It is a pickle that names nothing but classes and functions of the pure packages, which touch no world (a contract of imports),
and a handful of containers. Reading it makes instances of those classes and sets their fields: no function is called, no class is
written to, and arrays hold plain numbers, so that bytes of somebody else make wrong values, and nothing else.
"""

from __future__ import annotations

import collections
import enum
import io
import pickle
import re
from fractions import Fraction
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any, ClassVar

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
NUMBERS = re.compile(r"[biuf][0-9]{1,2}|O8?")
RATIO = re.compile(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?")
LONGEST = 10**7
"""Of a range that is counted through."""


def _array(*_: Any) -> Any:
    """Return an array that its state fills."""
    return np.empty(0, "b")


def _dtype(text: str, *_: Any) -> Any:
    if not isinstance(text, str) or not NUMBERS.fullmatch(text):
        raise Unreadable(f"it has an array of {text!r}")
    return np.dtype(text)


def _fill(array: Any, state: Any) -> None:
    """numpy takes bytes for pointers where an array is said to hold objects."""
    _, _, kind, _, content = state
    if kind.hasobject != isinstance(content, list):
        raise Unreadable(f"it has an array of {kind} from {type(content).__name__}")
    array.__setstate__(state)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > LONGEST:
        raise Unreadable(f"it counts to {len(found):,}")
    return found


BESIDE: dict[tuple[str, str], Any] = {
    ("builtins", "getattr"): _method, ("_operator", "getitem"): _item, ("time", "perf_counter"): perf_counter,
    ("numpy", "dtype"): _dtype, ("numpy", "ndarray"): None, (_reconstruct.__module__, "_reconstruct"): _array,
    ("collections", "Counter"): collections.Counter, ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict, ("collections", "deque"): collections.deque,
    ("builtins", "int"): int, ("builtins", "list"): list, ("builtins", "dict"): dict, ("fractions", "Fraction"): Fraction,
    ("builtins", "set"): set, ("builtins", "frozenset"): frozenset, ("builtins", "range"): _range,
    ("builtins", "slice"): slice,
    ("msgspec._utils", "rebuild"): _rebuild,
}  # fmt: skip
CALLED = {found for found in BESIDE.values() if found is not None}


def _is_pure(module: str) -> bool:
    return f"{module}.".startswith(PURE) and not any(part in f"{module}." for part in NOT_PURE)


class _Reader(pickle._Unpickler):  # the one that can be told what not to do
    stack: list[Any]
    dispatch: ClassVar[dict[int, Any]] = {
        code: step for code, step in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (pickle.INST, pickle.OBJ, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID)
    }  # fmt: skip

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

    def load_reduce(self) -> None:
        called, given = self.stack[-2:]
        if not (called in CALLED if not isinstance(called, type) else called in CALLED or _is_pure(called.__module__)):
            raise Unreadable(f"it calls {called!r}")
        if called is Fraction and not all(isinstance(one, int) or RATIO.fullmatch(str(one)) for one in given):
            raise Unreadable("it has a fraction that is none")
        self._step(pickle.REDUCE)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        found, state = self.stack[-2:]
        if isinstance(found, np.ndarray):
            _fill(found, state)
        elif not isinstance(found, np.dtype):
            parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
            named = {name for part in parts if isinstance(part, dict) for name in part}
            if isinstance(found, (type, enum.Enum)) or not _is_pure(type(found).__module__) or named & {"__class__", "__dict__"}:
                raise Unreadable(f"it writes into {found!r:.80}")
            self._step(pickle.BUILD)
            return
        elif state[1] not in ("<", "|", "=") or any(part is not None for part in state[2:5]):
            raise Unreadable("it has an array of structures")
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = load_build

    def _step(self, code: bytes) -> None:
        step: Any = pickle._Unpickler.dispatch[code[0]]
        step(self)
