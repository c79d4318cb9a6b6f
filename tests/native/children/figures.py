"""Programs that ask what a card has, one after another in one container: figures.py WAY...

Each way is a program of its own; prints a line for each: {figure: MiB}, of the card that the variable DEVICE names.
"""

import ctypes as c
import json
import os
import subprocess
import sys

DEVICE = int(os.environ.get("DEVICE", "0"))
MIB = 1 << 20


class Memory(c.Structure):
    _fields_ = [("total", c.c_ulonglong), ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class MemoryV2(c.Structure):
    _fields_ = [("version", c.c_uint), *((name, c.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("bytes", c.c_ulonglong), ("instance", c.c_uint), ("compute", c.c_uint)]


def nvml(entry="nvmlInit_v2"):
    library = c.CDLL("libnvidia-ml.so.1")
    handle, one, two = c.c_void_p(), Memory(), MemoryV2(version=0x02000028)
    assert getattr(library, entry)(*(c.c_uint(0),) if entry == "nvmlInitWithFlags" else ()) == 0
    assert library.nvmlDeviceGetHandleByIndex_v2(DEVICE, c.byref(handle)) == 0
    assert library.nvmlDeviceGetMemoryInfo(handle, c.byref(one)) == 0
    assert library.nvmlDeviceGetMemoryInfo_v2(handle, c.byref(two)) == 0
    processes, count = (Process * 64)(), c.c_uint(64)
    assert library.nvmlDeviceGetComputeRunningProcesses_v3(handle, c.byref(count), processes) == 0
    return {
        "nvml total": one.total, "nvml used": one.used, "nvml free": one.free,
        "nvml v2 total": two.total, "nvml v2 used": two.used + two.reserved, "nvml v2 free": two.free,
        "processes used": sum(process.bytes for process in processes[: count.value]),
    }  # fmt: skip


def cuda():
    sys.path.insert(0, os.path.dirname(__file__))
    from driver import info, must, size_t, start

    whole = size_t()
    must("cuInit", 0)
    must("cuDeviceTotalMem_v2", c.byref(whole), DEVICE)
    start(DEVICE)
    free, total = info()
    return {"cuda total": whole.value, "context total": total, "context free": free, "context used": total - free}


def forked(ask):
    """In a child of a process that has asked."""
    ask()
    end, mine = os.pipe()
    if os.fork() == 0:
        os.write(mine, json.dumps(ask()).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(end, 1 << 16))


def nvidia_smi():
    fields = ("total", "used", "free")
    words = ["nvidia-smi", "-i", str(DEVICE), f"--query-gpu={','.join(f'memory.{field}' for field in fields)}"]
    said = subprocess.run([*words, "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return {f"nvidia-smi {field}": int(text) * MIB for field, text in zip(fields, said.split(", "), strict=True)}


WAYS = {
    "nvml": nvml,
    "nvmlInit": lambda: nvml("nvmlInit"),
    "nvmlInitWithFlags": lambda: nvml("nvmlInitWithFlags"),
    "nvidia-smi": nvidia_smi,
    "cuda": cuda,
    "nvml, cuda": lambda: {**nvml(), **cuda()},
    "cuda, nvml": lambda: {**cuda(), **nvml()},
    "nvml, fork": lambda: forked(nvml),
}

if __name__ == "__main__" and sys.argv[1] == "--one":
    print(json.dumps({figure: value // MIB for figure, value in WAYS[sys.argv[2]]().items()}), flush=True)
elif __name__ == "__main__":
    for way in sys.argv[1:]:
        subprocess.run([sys.executable, "-I", "-S", __file__, "--one", way], check=True)
