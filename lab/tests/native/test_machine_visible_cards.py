"""A container sees the cards that it was given: what the plugin answers in NVIDIA_VISIBLE_DEVICES takes effect."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from kit.machines import Programs

from pumice_lab.machine import Machine, MachineError, create, library_dir, machine_of

PROGRAM = """
import ctypes, json, pynvml, uuid
pynvml.nvmlInit()
count = pynvml.nvmlDeviceGetCount()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
assert [pynvml.nvmlDeviceGetIndex(h) for h in handles] == list(range(count))
cuda = ctypes.CDLL("libcuda.so.1")
devices = ctypes.c_int(0)
if cuda.cuInit(0) == 0:
    assert cuda.cuDeviceGetCount(ctypes.byref(devices)) == 0
seen = []
for ordinal in range(devices.value):
    raw = (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGetUuid_v2(raw, ordinal) == 0
    seen.append("GPU-" + str(uuid.UUID(bytes=bytes(raw))))
print(json.dumps({"nvml": [pynvml.nvmlDeviceGetUUID(h) for h in handles], "cuda": seen,
                  "minor": [pynvml.nvmlDeviceGetMinorNumber(h) for h in handles]}))
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    return create(machine_of("4xTesla-T4", name="n1"), tmp_path_factory.mktemp("visible") / "machine")


def look(machine: Machine, *, visible: str | None, ordinals: str | None = None) -> dict[str, list]:
    environment = Programs(machine).environment
    if visible is not None:
        environment["NVIDIA_VISIBLE_DEVICES"] = visible
    if ordinals is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ordinals
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


UUIDS = [card.uuid for card in machine_of("4xTesla-T4", name="n1").cards]


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, [0, 1, 2, 3]),
        ("all", [0, 1, 2, 3]),
        (UUIDS[2], [2]),
        (f"{UUIDS[3]},{UUIDS[1]}", [1, 3]),
        ("2,0", [0, 2]),
        ("GPU-of-another-machine", []),
        ("none", []),
        ("void", []),
        ("", []),
    ],
)
def test_a_process_sees_the_cards_that_are_named_in_the_hosts_order(machine, visible, cards):
    seen = look(machine, visible=visible)
    assert seen["nvml"] == seen["cuda"] == [UUIDS[card] for card in cards]
    assert seen["minor"] == cards, "device nodes keep the host's numbers"


def test_cudas_own_list_counts_among_the_visible_cards(machine):
    seen = look(machine, visible=f"{UUIDS[1]},{UUIDS[3]}", ordinals="1")
    assert seen["nvml"] == [UUIDS[1], UUIDS[3]]
    assert seen["cuda"] == [UUIDS[3]]
    assert look(machine, visible=UUIDS[1], ordinals=UUIDS[3])["cuda"] == []


