"""``npu-smi`` of an emulated machine: the common ways to ask for NPUs, and making and destroying their slices (Huawei's
npu-smi reference)."""
