"""Does what every entry that is no allocation does to the books, and prints {entry: [bytes in use after each step]}.

The bytes are what the container is told (total minus free), less what it was told before the entry's own steps.
"""

import ctypes as c
import os
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from books import begin, in_use
from driver import alloc, must, ptr, say, size_t, start, u64
from effects_of_code import CODE, VARIABLE, function_asked_for, heap_resized, library, module_unloaded
from effects_of_contexts import context, detached, green, green_alone, primary
from effects_of_graphs import Parameters, graph_memory_trimmed, instantiated, updated
from effects_of_memory import (
    array,
    attribute,
    attributes,
    freed_without_a_pointer,
    handle_released_after_its_mapping,
    handle_released_before_its_mapping,
    handle_retained,
    linear,
    pool_destroyed,
    pool_of_host_memory,
    pool_told_to_keep_nothing,
    pool_trimmed,
    told_as_managed,
)
from effects_of_multicast import ended_with_what_is_bound, unbound, unbound_address
from effects_of_sharing import (
    of_another_interface,
    opened,
    own_export_imported,
    pointer_of_anothers_pool,
    told_to_another,
)


def shut_down():
    """NVML is up for the library's own questions, and down for the program when the program has shut it down."""
    nvml, count = c.CDLL("libnvidia-ml.so.1"), c.c_uint()
    for _ in range(2):
        assert nvml.nvmlInit_v2() == 0
    yield [nvml.nvmlShutdown(), nvml.nvmlDeviceGetCount_v2(c.byref(count))]
    yield [nvml.nvmlShutdown(), nvml.nvmlDeviceGetCount_v2(c.byref(count)), nvml.nvmlShutdown()]
    alloc(1)
    time.sleep(1.5)  # the library's own thread asks once a second
    yield [nvml.nvmlDeviceGetCount_v2(c.byref(count)), nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(c.byref(count))]
    nvml.nvmlShutdown()


def total(name, integer):
    def steps():
        answer = integer()
        must(name, c.byref(answer), 0)
        yield answer.value

    return steps


def memory_info(name, integer):
    def steps():
        available, all_of_it = integer(), integer()
        must(name, c.byref(available), c.byref(all_of_it))
        yield all_of_it.value
        yield all_of_it.value - available.value - in_use()

    return steps


start()
error, log, result, outcome = ptr(), c.create_string_buffer(256), c.c_int(), (c.c_char * 32)()
parameters = Parameters()
log_arguments = (c.byref(error), log, size_t(len(log)))
ENTRIES = {
    "cuMemFree": freed_without_a_pointer,
    "cuMemFree_v2": linear("cuMemFree_v2"),
    "cuMemFreeAsync": linear("cuMemFreeAsync"),
    "cuMemFreeAsync_ptsz": linear("cuMemFreeAsync_ptsz"),
    "cuArrayDestroy": array("cuArrayDestroy", False),
    "cuMipmappedArrayDestroy": array("cuMipmappedArrayDestroy", True),
    "cuMemPoolCreate": pool_of_host_memory,
    "cuMemPoolTrimTo": pool_trimmed,
    "cuMemPoolDestroy": pool_destroyed,
    "cuMemPoolSetAttribute": pool_told_to_keep_nothing,
    "cuMemMap": handle_released_before_its_mapping,
    "cuMemUnmap": handle_released_before_its_mapping,
    "cuMemRelease": handle_released_after_its_mapping,
    "cuMemRetainAllocationHandle": handle_retained,
    "cuMemImportFromShareableHandle": own_export_imported,
    "cuMemExportToShareableHandle": told_to_another("cuMemExportToShareableHandle"),
    "cuIpcGetMemHandle": told_to_another("cuIpcGetMemHandle"),
    "cuIpcOpenMemHandle": opened("cuIpcOpenMemHandle"),
    "cuIpcOpenMemHandle_v2": opened("cuIpcOpenMemHandle_v2"),
    "cuIpcCloseMemHandle": opened("cuIpcOpenMemHandle_v2"),
    "cuMemPoolImportPointer": pointer_of_anothers_pool,
    "cuCtxCreate": context("cuCtxCreate", "cuCtxDestroy_v2", 0),
    "cuCtxCreate_v2": context("cuCtxCreate_v2", "cuCtxDestroy_v2", 0),
    "cuCtxCreate_v3": context("cuCtxCreate_v3", "cuCtxDestroy_v2", None, 0, 0),
    "cuCtxCreate_v4": context("cuCtxCreate_v4", "cuCtxDestroy_v2", None, 0),
    "cuCtxDestroy": context("cuCtxCreate_v2", "cuCtxDestroy", 0),
    "cuCtxDestroy_v2": context("cuCtxCreate_v2", "cuCtxDestroy_v2", 0),
    "cuDevicePrimaryCtxRetain": primary("cuDevicePrimaryCtxRelease_v2"),
    "cuDevicePrimaryCtxRelease": primary("cuDevicePrimaryCtxRelease"),
    "cuDevicePrimaryCtxRelease_v2": primary("cuDevicePrimaryCtxRelease_v2"),
    "cuDevicePrimaryCtxReset": primary("cuDevicePrimaryCtxReset"),
    "cuDevicePrimaryCtxReset_v2": primary("cuDevicePrimaryCtxReset_v2"),
    "cuCtxDetach": detached,
    "cuGreenCtxCreate": green_alone,
    "cuGreenCtxDestroy": green,
    "cuImportExternalMemory": of_another_interface,
    "cuDestroyExternalMemory": of_another_interface,
    "cuMulticastCreate": ended_with_what_is_bound,
    "cuMulticastUnbind": unbound("cuMulticastBindMem"),
    "cuMulticastBindMem": unbound("cuMulticastBindMem"),
    "cuMulticastBindMem_v2": unbound("cuMulticastBindMem_v2", 0),
    "cuMulticastBindAddr": unbound_address("cuMulticastBindAddr"),
    "cuMulticastBindAddr_v2": unbound_address("cuMulticastBindAddr_v2", 0),
    "nvmlShutdown": shut_down,
    "cuModuleUnload": module_unloaded,
    "cuCtxSetLimit": heap_resized,
    "cuModuleGetFunction": function_asked_for,
    "cuLibraryLoadData": library(VARIABLE),
    "cuLibraryLoadFromFile": library(VARIABLE, "cuLibraryLoadFromFile"),
    "cuLibraryUnload": library(VARIABLE, "cuLibraryGetGlobal"),
    "cuLibraryGetGlobal": library(VARIABLE, "cuLibraryGetGlobal"),
    "cuLibraryGetModule": library(CODE, "cuLibraryGetModule"),
    "cuKernelGetFunction": library(CODE, "cuKernelGetFunction"),
    "cuGraphInstantiate": instantiated("cuGraphInstantiate", *log_arguments),
    "cuGraphInstantiate_v2": instantiated("cuGraphInstantiate_v2", *log_arguments),
    "cuGraphInstantiateWithFlags": instantiated("cuGraphInstantiateWithFlags", u64(0)),
    "cuGraphInstantiateWithParams": instantiated("cuGraphInstantiateWithParams", c.byref(parameters)),
    "cuGraphInstantiateWithParams_ptsz": instantiated("cuGraphInstantiateWithParams_ptsz", c.byref(parameters)),
    "cuGraphExecUpdate": updated("cuGraphExecUpdate", c.byref(error), c.byref(result)),
    "cuGraphExecUpdate_v2": updated("cuGraphExecUpdate_v2", c.byref(outcome)),
    "cuGraphExecDestroy": graph_memory_trimmed,
    "cuDeviceGraphMemTrim": graph_memory_trimmed,
    "cuDeviceTotalMem": total("cuDeviceTotalMem", c.c_uint),
    "cuDeviceTotalMem_v2": total("cuDeviceTotalMem_v2", size_t),
    "cuPointerGetAttribute": told_as_managed(attribute),
    "cuPointerGetAttributes": told_as_managed(attributes),
    "cuMemGetInfo": memory_info("cuMemGetInfo", c.c_uint),
    "cuMemGetInfo_v2": memory_info("cuMemGetInfo_v2", size_t),
}
answers = {}
for entry, steps in ENTRIES.items():
    begin()
    try:
        answers[entry] = list(steps())
    except Exception as problem:
        answers[entry] = str(problem)
say(answers)
