"""The state of a running expression: its variables and its remaining cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pumice.cel.values import CelError, type_of

STEPS: Final = 1_000_000
"""The cost limit of one expression, in looks at a value (Kubernetes' bound on a single rule)."""
ALL_STEPS: Final = 1_000_000
"""The cost limit of all rules of a request together, and all expressions of its policies: the server does nothing else
meanwhile. Kubernetes has 10,000,000 for each of the two, on many processors."""
LONGEST_MESSAGE: Final = 5 << 10
"""Characters of what an expression may say instead of a fixed message; a longer one is left out."""


class OverBudget(CelError):
    """The expression would go on."""


@dataclass(slots=True)
class Budget:
    left: int = STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OverBudget("operation cancelled: actual cost limit exceeded")


@dataclass(slots=True)
class Env:
    variables: Mapping[str, Any]
    budget: Budget

    def inner(self, more: Mapping[str, Any]) -> Env:
        return Env({**self.variables, **more}, self.budget)


Run = Callable[[Env], Any]


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: {type_of(value)} is no bool")
    return value


def decided(sides: Iterable[Callable[[], Any]], decides: bool) -> bool:
    """The first that comes to ``decides`` settles it, also after one that could not be told; else all have to be told."""
    problem: CelError | None = None
    for side in sides:
        try:
            if boolean(side()) is decides:
                return decides
        except OverBudget:
            raise
        except CelError as found:
            problem = problem or found
    if problem is not None:
        raise problem
    return not decides
