"""Sums of what pods request and nodes offer, read from API objects alone: a judge imports nothing of what it judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Json = Mapping[str, Any]
Amounts = Counter[str]

_SUFFIX: dict[str, Fraction | int] = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": 1000,
                                      "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10,
                                      "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}  # fmt: skip


@lru_cache(maxsize=10_000)
def quantity(text: Any) -> Fraction | int:
    digits = str(text)
    suffix = next((digits[-length:] for length in (2, 1) if digits[-length:] in _SUFFIX), "")
    found = Fraction(digits[: len(digits) - len(suffix)]) * _SUFFIX.get(suffix, 1)
    return found if found.denominator > 1 else found.numerator  # whole numbers are added much faster


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def done(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def requests(pod: Json) -> Amounts:
    """Return the pod's request on its node. A container that is being resized takes the larger of what its spec wants and what
    the kubelet says that it has (KEP 1287)."""
    spec = pod["spec"]
    has = {status["name"]: status for status in pod.get("status", {}).get("containerStatuses", ())}
    total: Amounts = Counter()
    for container in spec.get("containers", ()):
        total.update(_of_container(container, has.get(container.get("name", ""), {})))
    sidecars: Amounts = Counter()
    peak: Amounts = Counter()
    for container in spec.get("initContainers", ()):
        wanted = _of_container(container, {})
        if container.get("restartPolicy") == "Always":
            sidecars.update(wanted)
            peak |= sidecars
        else:
            peak |= wanted + sidecars
    total.update(sidecars)
    total |= peak
    for name, value in spec.get("overhead", {}).items():
        total[name] += quantity(value)  # type: ignore[assignment]
    return total


def _of_container(container: Json, status: Json) -> Amounts:
    resources = container.get("resources", {})
    wanted: Amounts = Counter()
    for name, value in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
        wanted[name] = quantity(value)  # type: ignore[assignment]
    for name, value in {**status.get("allocatedResources", {}), **status.get("resources", {}).get("requests", {})}.items():
        wanted[name] = max(wanted[name], quantity(value))  # type: ignore[assignment]
    return wanted
