"""Shares of cards asked by resource, in Volcano's words and in HAMi's, and the same as a claim of our driver's class.

``pumice convert --to claims`` writes it into files, the admission server into pods; between the latter and the controller, which
makes the templates, a share travels in an annotation of the pod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.wire import bursts, hami_names, names
from pumice.wire.kubernetes import DEVICES

CLASS: Final = names.CLAIM_DRIVER
"""The DeviceClass of shared cards."""
RESOURCES: Final[Mapping[str, str]] = {**{name: name for name in hami_names.RESOURCES.values()}, **hami_names.RESOURCES}
"""Resources of both sides by ours."""
MODES: Final = (names.VGPU_MODE, f"{names.NVIDIA_DOMAIN}/vgpu-mode")
ALL_CORES: Final = "without an amount of cores a claim takes all of them, and no other share fits beside it; write one"
PERHAPS_NVIDIAS: Final = "it may be NVIDIA's own plugin's, a whole card"
_USE: Final = (hami_names.USE_UUID, names.USE_GPU_UUID)
_NOUSE: Final = (hami_names.NOUSE_UUID, names.NOUSE_GPU_UUID)
_WHOLE: Final = re.compile(r"([0-9]{1,9})(k?)")
"""A number as people write it, or as the API server writes thousands."""


class Share(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Of each of ``number`` cards ``memory`` MiB and ``cores`` per cent, 0 of which is what the class gives by default. Cards by
    UUID, models by a part of their name in small letters."""

    number: int = 1
    memory: int = 0
    cores: int = 0
    cards: tuple[str, ...] = ()
    not_cards: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()


def amounts(named: Mapping[str, Any], *, sure: bool) -> dict[str, str]:
    """The amounts of a container's limits by our names, where it asks for a share. ``sure``: ``nvidia.com/gpu`` alone
    is HAMi's."""
    said = {name: str(value) for name, value in named.items() if name in RESOURCES}
    if set(said) == {names.WHOLE_GPU} and not sure:
        return {}
    return {RESOURCES[name]: value for name, value in said.items()}


def unwritable(named: Mapping[str, Any], notes: Mapping[str, Any]) -> str:
    """Return why these amounts, by the names of either side, in a pod of these annotations are no claim; empty where they are
    one."""
    if any(str(notes.get(name, "")) not in ("", "hami-core") for name in MODES):
        return "only shares of cards are written as claims, no slices of mode mig"
    if bursts.is_asked(notes):
        return f"a claim has no burst ({names.BURST_MEMORY}, {names.BURST_CORES})"
    for name, value in named.items():
        ours = RESOURCES.get(name)
        if ours == names.VGPU_MEMORY_PERCENTAGE:
            return "a claim asks memory in bytes, not in per cent of a card; write an amount"
        if ours and not _WHOLE.fullmatch(str(value)):
            return f"{name} is no whole number"
        if ours == names.VGPU_NUMBER and _number(str(value)) == 0:
            return f"{name}: 0 asks for no card"
        if ours == names.VGPU_CORES and _number(str(value)) > 100:
            return "a card has 100 per cent"
    return ""


def share_of(asked: Mapping[str, str], notes: Mapping[str, Any]) -> Share:
    """Return the share of these amounts, by our names and each a whole number, in a pod of these annotations."""
    return Share(
        _number(asked.get(names.VGPU_NUMBER, "1")), _number(asked.get(names.VGPU_MEMORY, "0")),
        _number(asked.get(names.VGPU_CORES, "0")), _listed(notes, *_USE), _listed(notes, *_NOUSE),
        tuple(one.lower() for one in _listed(notes, names.USE_GPU_TYPE)),
        tuple(one.lower() for one in _listed(notes, names.NOUSE_GPU_TYPE)),
    )  # fmt: skip


def template(name: str, namespace: str, share: Share) -> dict[str, Any]:
    """Return the ResourceClaimTemplate by which a pod asks for a share; ``namespace`` empty: none is named."""
    exactly: dict[str, Any] = {"deviceClassName": CLASS}
    if selectors := _selectors(share):
        exactly["selectors"] = [{"cel": {"expression": one}} for one in selectors]
    if share.number > 1:
        exactly["count"] = share.number
    if capacity := _capacity(share):
        exactly["capacity"] = {"requests": capacity}
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    return {"apiVersion": f"{DEVICES}/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}


def said(share: Share) -> str:
    """Return what a share asks, for people."""
    return f"{share.number} of class {CLASS}" + "".join(f", {key} {amount}" for key, amount in _capacity(share).items())


def render(shares: Mapping[str, Share]) -> str:
    """The annotation of a pod: the shares that are claims now, by the names of their templates."""
    return msgspec.json.encode(shares, order="sorted").decode()


def parse(text: str) -> dict[str, Share]:
    """The same read back. Raises ValueError where it is none of ours."""
    try:
        return msgspec.json.decode(text, type=dict[str, Share])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{names.SHARE_CLAIMS}: {error}") from error


def _capacity(share: Share) -> dict[str, str]:
    return {**({"memory": f"{share.memory}Mi"} if share.memory else {}), **({"cores": str(share.cores)} if share.cores else {})}


def _selectors(share: Share) -> list[str]:
    """The cards that are named, as expressions."""
    device = f'device.attributes["{CLASS}"]'
    found = [f"{no}({device}.uuid in {json.dumps(uuids)})" for no, uuids in (("", share.cards), ("!", share.not_cards)) if uuids]
    found += [f"{no}{json.dumps(models)}.exists(t, {device}.productName.lowerAscii().contains(t))"
              for no, models in (("", share.models), ("!", share.not_models)) if models]  # fmt: skip
    return found


def _listed(notes: Mapping[str, Any], *listing: str) -> tuple[str, ...]:
    return tuple(one.strip() for name in listing for one in str(notes.get(name, "")).split(",") if one.strip())


def _number(text: str) -> int:
    found = _WHOLE.fullmatch(text)
    assert found is not None, text
    return int(found[1]) * (1000 if found[2] else 1)
