#include "driver/outlook.h"

#include "driver/guest.h"

static uint64_t free_now(const struct outlook *outlook)
{
    size_t available = 0, total;
    struct nvml_memory memory = {0, 0, 0};
    nvmlDevice handle;
    if (!outlook->by_nvml)
        return INSIDE(real_cuda()->cuMemGetInfo_v2(&available, &total)) == CUDA_SUCCESS ? available : 0;
    const struct real *nvml = guest_nvml();
    if (nvml == NULL || INSIDE(nvml->nvmlDeviceGetHandleByIndex_v2((unsigned)outlook->device, &handle)) != NVML_SUCCESS ||
        INSIDE(nvml->nvmlDeviceGetMemoryInfo(handle, &memory)) != NVML_SUCCESS)
        return 0;
    return memory.free;
}

static struct outlook look(int device, bool by_nvml)
{
    struct outlook outlook = {.device = device, .by_nvml = by_nvml};
    if (device < 0 || memory_limit(&guest.map, device) == 0)
        return (struct outlook){.device = -1};
    outlook.booked = memory_used(&guest.map, device);
    outlook.free_bytes = free_now(&outlook);
    return outlook;
}

struct outlook outlook_in_context(int device)
{
    return look(device, false);
}

struct outlook outlook_by_nvml(int device)
{
    return look(device, true);
}

int64_t outlook_taken(const struct outlook *before)
{
    if (before->device < 0 || before->free_bytes == 0)
        return 0;
    uint64_t now = free_now(before), booked = memory_used(&guest.map, before->device);
    return now == 0 ? 0 : (int64_t)(before->free_bytes - now) - (int64_t)(booked - before->booked);
}

bool outlook_darkened(const struct outlook *before)
{
    return before->device >= 0 && free_now(before) < before->free_bytes;
}
