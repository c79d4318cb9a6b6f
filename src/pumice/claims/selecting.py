"""CEL selectors of classes and requests over devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pumice.cel.running import STEPS, Budget
from pumice.cel.values import CelError, type_of
from pumice.claims.objects import Attribute, Device, ResourceSlice

if TYPE_CHECKING:
    from pumice.cel.evaluation import Program

_NAMES: Final = frozenset(("device",))
ANSWERS_MOST: Final = 16_384
"""Answers kept for one slice; tenants who never write a selector twice must not fill our memory."""


class _Domains(dict[str, dict[str, Any]]):
    """Attributes by domain. A domain that is asked for and not there has none; ``in`` tells the truth."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}


@lru_cache(maxsize=1024)
def program_of(expression: str) -> Program:
    """Return the compiled selector. Raises CelError for one that Kubernetes would not compile."""
    # Here, for the parser of expressions is a tenth of the start of each command that answers by the scheduler's rules.
    from pumice.cel.checking import BOOL, DYN, MAP, STRING, checked, struct
    from pumice.cel.evaluation import compiled
    from pumice.cel.syntax import parse

    device = struct(driver=STRING, allowMultipleAllocations=BOOL, attributes=MAP, capacity=MAP)
    found = checked(parse(expression), {"device": device})
    if found not in (BOOL, DYN):
        raise CelError(f"must evaluate to bool or the unknown type, not {found.name}")
    return compiled(expression, _NAMES)


class Selections:
    """Answers of selectors, kept by slice, expression and device: a device says the same to all claims, as long as its slice
    stands."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], bool | str]] = defaultdict(dict)
        self._devices: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)

    def forget(self, slice_: str) -> None:
        """The slice is gone, or another one has its name."""
        self._known.pop(slice_, None)
        self._devices.pop(slice_, None)

    def selects(self, expression: str, slice_: ResourceSlice, device: Device, most: int = STEPS) -> tuple[bool | str, int]:
        """Return the answer, or what went wrong; and the steps that it took, ``most`` of them at the most."""
        answers, key = self._known[slice_.name], (expression, device.name)
        known = answers.get(key)
        if known is not None:
            return known, 0
        if len(answers) >= ANSWERS_MOST:
            answers.clear()
        budget = Budget(most)
        try:
            found: bool | str = _ran(program_of(expression), self._variables(slice_, device), budget)
        except CelError as problem:
            found = str(problem)
        answers[key] = found
        return found, most - budget.left

    def _variables(self, slice_: ResourceSlice, device: Device) -> Mapping[str, Any]:
        devices = self._devices[slice_.name]
        if device.name not in devices:
            devices[device.name] = {"device": _seen(slice_.spec.driver, device)}
        return devices[device.name]


def _ran(program: Program, variables: Mapping[str, Any], budget: Budget) -> bool:
    found = program(variables, budget)
    if not isinstance(found, bool):
        raise CelError(f"the selector came to {type_of(found)}, not to bool")
    return found


def _seen(driver: str, device: Device) -> dict[str, Any]:
    """A device as expressions see it. Raises CelError for an attribute that says no version though it should."""
    from pumice.cel.kubernetes import Quantity

    return {
        "driver": driver, "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": _by_domain(driver, {name: _plain(one) for name, one in device.attributes.items()}),
        "capacity": _by_domain(driver, {name: Quantity(one.value) for name, one in device.capacity.items()}),
    }  # fmt: skip


def _by_domain(driver: str, values: Mapping[str, Any]) -> _Domains:
    found = _Domains()
    for name, value in values.items():
        domain, _, own = name.rpartition("/")
        found.setdefault(domain or driver, {})[own] = value
    return found


def _plain(attribute: Attribute) -> Any:
    from pumice.cel.versions import semver

    kind, value = attribute.typed
    return semver(value) if kind == "version" else value
