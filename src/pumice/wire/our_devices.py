"""Our device types and drivers of claims as others know them, a row each: readers of a scheduler's configuration, of a cluster's
programs, of a node's claims, and accounts of shares."""

from __future__ import annotations

from typing import Final, NamedTuple

from pumice.wire import names

CARDS: Final = "NVIDIA's cards"
CHIPS: Final = "Ascend's chips"


class OurDevices(NamedTuple):
    """A device type of ours by its words. ``word``: of `pumice device-plugin`, as its program is told by. ``devices``: what it
    hands out, as ``resource``. ``switches``: the arguments of plugin ``deviceshare`` by which a scheduler shares them."""

    word: str
    devices: str
    resource: str
    switches: tuple[str, ...]


VGPU: Final = OurDevices("nvidia", CARDS, names.VGPU_NUMBER, ("deviceshare.VGPUEnable",))
GPUSHARE: Final = OurDevices(
    "gpushare", CARDS, names.GPU_MEMORY, ("deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable")
)
MINDCLUSTER: Final = OurDevices(
    "mindcluster", CHIPS, f"{names.HUAWEI}npu-core", ("deviceshare.AscendMindClusterVNPUEnable",)
)
HAMI_NPUS: Final = OurDevices("ascend", CHIPS, f"{names.HUAWEI}Ascend*", ("deviceshare.AscendHAMiVNPUEnable",))
OUR_DEVICES: Final = (VGPU, GPUSHARE, MINDCLUSTER, HAMI_NPUS)
_NAMING: Final = frozenset((names.VGPU_IDS, names.GPU_INDEX))


def is_our_resource(name: str) -> bool:
    """Return whether a resource is one that a device type of ours has, switched on or off."""
    return name.startswith((f"{names.DOMAIN}/", names.HUAWEI))


def names_our_devices(annotation: str) -> bool:
    """Return whether an annotation of that key names cards or chips that a pod has."""
    return annotation in _NAMING or annotation.startswith(names.HUAWEI)


class ClaimDriver(NamedTuple):
    """A driver of claims. ``word``: of `pumice dra-driver`. ``names``: it answers to these; the DeviceClass for all of a device
    has the first. ``book``: the file of what it has prepared on a node. ``manifest`` applies it with its classes. In accounts a
    device with a profile is a ``part``, whose cores are those of the counter ``cores``, and any other one is ``whole`` (empty: a
    part as well); its model is the product behind ``maker``."""

    word: str
    names: tuple[str, ...]
    book: str
    manifest: str
    maker: str
    cores: str
    part: str
    whole: str


CARD_CLAIMS: Final = ClaimDriver(
    "nvidia", (names.CLAIM_DRIVER, names.HAMI_CLAIM_DRIVER), "claims.json", "deploy/manifests/pumice-dra-driver.yml", "NVIDIA-",
    "compute-slices", "mig", "whole",
)  # fmt: skip
NPU_CLAIMS: Final = ClaimDriver(
    "ascend", (names.NPU_CLAIM_DRIVER,), "npu-claims.json", "deploy/manifests/pumice-dra-driver-npu.yml", "Ascend",
    "ai-cores", "npu", "",
)  # fmt: skip
CLAIM_DRIVERS: Final = {name: driver for driver in (CARD_CLAIMS, NPU_CLAIMS) for name in driver.names}
"""By the names that they answer to."""
