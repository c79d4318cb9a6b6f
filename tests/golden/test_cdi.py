"""The file of CDI devices, word by word: NVIDIA's names (NVIDIA k8s-device-plugin internal/cdi), the format of CDI 0.5."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.node_objects import A, B, card

from pumice.devices.nvidia_vgpu.node.devices_file import Driver, cards_file, extra_file
from pumice.ports.slices import Place, Slice
from pumice.wire import cdi

FILES = Path(__file__).parent / "cdi"
CARDS = (card(0, A, "Tesla T4"), card(1, B, "A100-SXM4-40GB", mig=True))
SLICE = Slice(Place(B, "1g.5gb", 6), 1, "MIG-1", nodes=("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"))
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
CUDA = f"{LIBRARIES}/libcuda.so.550.54.15"
WHOLE = Driver(
    "/run/nvidia/driver", "/run/nvidia/driver", control=("/dev/nvidiactl", "/dev/nvidia-uvm"),
    files=(CUDA, "/usr/bin/nvidia-smi"), links=((f"{LIBRARIES}/libcuda.so.1", CUDA),), folders=(LIBRARIES,),
    hook="/usr/bin/nvidia-ctk", extras=(("mofed", ("/dev/infiniband/rdma_cm",)),),
)  # fmt: skip
SPECIFICATIONS = {
    "cards.json": cards_file(CARDS, (SLICE,), WHOLE),
    "bare.json": cards_file(CARDS[:1], (), Driver()),
    "mofed.json": extra_file("mofed", WHOLE),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_file_is_as_it_was_and_is_read_back(name: str) -> None:
    spec = SPECIFICATIONS[name]
    assert cdi.render(spec).decode() == (FILES / name).read_text("utf-8")
    assert cdi.parse(cdi.render(spec)) == spec


def test_the_file_and_its_devices_are_called_as_nvidias_plugin_calls_them() -> None:
    assert cdi.file_name() == "k8s.device-plugin.nvidia.com-gpu.json"
    assert cdi.qualified(A) == f"k8s.device-plugin.nvidia.com/gpu={A}"
    assert cdi.qualified(cdi.ALL, "gds") == "k8s.device-plugin.nvidia.com/gds=all"
