#include "services/free_delta.h"

#include "services/process_state.h"
#include "services/own_nvml.h"

static uint64_t free_now(const struct free_delta *delta)
{
    size_t available = 0, total;
    struct nvml_memory memory = {0, 0, 0};
    nvmlDevice handle;
    if (!delta->by_nvml)
        return CUDA(cuMemGetInfo_v2(&available, &total)) == CUDA_SUCCESS ? available : 0;
    if (!own_nvml())
        return 0;
    bool told = process_nvml_handle(delta->device, &handle) && NVML(nvmlDeviceGetMemoryInfo(handle, &memory)) == NVML_SUCCESS;
    own_nvml_done();
    return told ? memory.free : 0;
}

static struct free_delta look(int device, bool by_nvml)
{
    struct free_delta delta = {.device = device, .by_nvml = by_nvml};
    if (device < 0 || memory_limit(&process_state.map, device) == 0)
        return (struct free_delta){.device = -1};
    delta.booked = memory_used(&process_state.map, device);
    delta.free_bytes = free_now(&delta);
    return delta;
}

struct free_delta free_delta_in_context(int device)
{
    return look(device, false);
}

struct free_delta free_delta_by_nvml(int device)
{
    return look(device, true);
}

int64_t free_delta_taken(const struct free_delta *before)
{
    if (before->device < 0 || before->free_bytes == 0)
        return 0;
    uint64_t now = free_now(before), booked = memory_used(&process_state.map, before->device);
    return now == 0 ? 0 : (int64_t)(before->free_bytes - now) - (int64_t)(booked - before->booked);
}

bool free_delta_less(const struct free_delta *before)
{
    return before->device >= 0 && free_now(before) < before->free_bytes;
}
