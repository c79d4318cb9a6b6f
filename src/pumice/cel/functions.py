"""The functions of expressions: the language's own, those of its extensions, and Kubernetes'.

A function is called by its name with its arguments, a method with what it is called on before them. They raise TypeError where
the arguments are of other types, and CelError, ValueError or OverflowError where their values will not do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from pumice.cel import conversions, kubernetes, lists, strings, times, versions
from pumice.cel.values import NOTHING, CelError, Metered, Optional, of


def _size(value: Any) -> int:
    return len(of(value, str, bytes, list, Mapping))


def _among(*given: Any) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], list) else list(given)


def _value(optional: Any) -> Any:
    if not of(optional, Optional).there:
        raise CelError("optional.none() dereference")
    return optional.value


FUNCTIONS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "size": _size, **conversions.FUNCTIONS, **strings.FUNCTIONS, **times.FUNCTIONS, **kubernetes.FUNCTIONS,
    **versions.FUNCTIONS,
}  # fmt: skip

NAMESPACES: Final[dict[str, Callable[..., Any] | Metered]] = {
    "optional.of": lambda value: Optional(True, value), "optional.none": lambda: NOTHING,
    "optional.ofNonZeroValue": lambda value: Optional(True, value) if value else NOTHING,
    "math.greatest": lambda *given: lists.greatest(_among(*given)), "math.least": lambda *given: lists.least(_among(*given)),
    "math.abs": lambda value: abs(of(value, int, float)), "math.ceil": lambda value: float(math.ceil(of(value, float))),
    "math.floor": lambda value: float(math.floor(of(value, float))),
    **strings.NAMESPACES, **lists.NAMESPACES, **kubernetes.NAMESPACES,
}  # fmt: skip

METHODS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "size": _size, "hasValue": lambda value: of(value, Optional).there, "value": _value,
    "orValue": lambda value, other: value.value if of(value, Optional).there else other,
    "or": lambda value, other: value if of(value, Optional).there else of(other, Optional),
    **strings.METHODS, **lists.METHODS, **times.METHODS, **kubernetes.METHODS,
    **versions.METHODS,
}  # fmt: skip
