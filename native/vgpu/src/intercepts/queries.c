/* First use, and what the program is told about memory: one story from CUDA and NVML (HAMi-core src/nvml/hook.c, HAMi-core
 * src/allocator/allocator.c). */
#include "core/shared_allocations.h"
#include "core/slots.h"
#include "services/contexts.h"
#include "services/process_state.h"
#include "services/own_nvml.h"

#include <errno.h>
#include <string.h>

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- first use --------------------------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuInit(flags));
    int saved = errno;
    if (rc == CUDA_SUCCESS && process_serves() && process_state.device_count == 0)
        devices_from_cuda();
    errno = saved;
    return rc;
}

static nvmlReturn after_nvml_init(nvmlReturn rc)
{
    int saved = errno;
    if (rc == NVML_SUCCESS && inside_driver == 0)
        own_nvml_program_began();
    if (rc == NVML_SUCCESS && process_serves())
        devices_name();
    errno = saved;
    return rc;
}

nvmlReturn nvmlInit(void)
{
    const struct real *real = real_nvml();
    return after_nvml_init(INSIDE(real->nvmlInit()));
}

nvmlReturn nvmlInit_v2(void)
{
    const struct real *real = real_nvml();
    return after_nvml_init(INSIDE(real->nvmlInit_v2()));
}

nvmlReturn nvmlInitWithFlags(unsigned flags)
{
    const struct real *real = real_nvml();
    return after_nvml_init(INSIDE(real->nvmlInitWithFlags(flags)));
}

nvmlReturn nvmlShutdown(void)
{
    const struct real *real = real_nvml();
    return inside_driver > 0 ? real->nvmlShutdown() : own_nvml_program_ends(real);
}

/* ---- what CUDA tells --------------------------------------------------------------------------------------------- */

/* The limit when there is one, else 0. */
static uint64_t limit_of(int device)
{
    return device < 0 ? 0 : memory_limit(&process_state.map, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuDeviceTotalMem_v2(bytes, ordinal));
    uint64_t limit = rc == CUDA_SUCCESS && process_serves() ? limit_of(process_device(ordinal)) : 0;
    if (limit != 0)
        *bytes = lesser(*bytes, limit);
    return rc;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuDeviceTotalMem(bytes, ordinal));
    uint64_t limit = rc == CUDA_SUCCESS && process_serves() ? limit_of(process_device(ordinal)) : 0;
    if (limit != 0)
        *bytes = (unsigned)lesser(*bytes, limit);
    return rc;
}

/*
 * total and free of the card become those of the container; never an error of our own. Memory beyond the card is nothing to be
 * counted on, whatever the limit: linear memory may get some where the driver has none left (CUDA_OVERSUBSCRIBE).
 */
static void share(int device, uint64_t *free_bytes, uint64_t *total)
{
    contexts_notice(device);
    uint64_t limit = limit_of(device);
    if (limit == 0)
        return;
    shared_allocations_sweep(&process_state.map); /* whoever sizes what it does by what is free is not to count the dead */
    uint64_t used = memory_used(&process_state.map, device);
    *total = lesser(*total, limit);
    *free_bytes = lesser(used < *total ? *total - used : 0, *free_bytes);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemGetInfo_v2(free_bytes, total));
    int device = rc == CUDA_SUCCESS && free_bytes != NULL && total != NULL && process_serves() ? process_current_device(real) : -1;
    if (device < 0)
        return rc;
    uint64_t available = *free_bytes, all = *total;
    share(device, &available, &all);
    *free_bytes = available;
    *total = all;
    return rc;
}

CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemGetInfo(free_bytes, total));
    int device = rc == CUDA_SUCCESS && free_bytes != NULL && total != NULL && process_serves() ? process_current_device(real) : -1;
    if (device < 0)
        return rc;
    uint64_t available = *free_bytes, all = *total;
    share(device, &available, &all);
    *free_bytes = (unsigned)lesser(available, UINT32_MAX);
    *total = (unsigned)lesser(all, UINT32_MAX);
    return rc;
}

/* ---- what NVML tells --------------------------------------------------------------------------------------------- */

/* A card beside the share shows itself as it is: the limit that the region holds ready for it is nobody's size. */
static bool is_shared(const struct real *real, nvmlDevice handle)
{
    char uuid[REGION_UUID_BYTES];
    return process_state.config.cards[0] == '\0' || real->nvmlDeviceGetUUID == NULL ||
           INSIDE(real->nvmlDeviceGetUUID(handle, uuid, sizeof uuid)) != NVML_SUCCESS || strstr(process_state.config.cards, uuid) != NULL;
}

/* The limit of an NVML device that is one of the region's, with its index; 0 when the answer stays as it is. */
static uint64_t nvml_limit(const struct real *real, nvmlReturn rc, nvmlDevice handle, const void *memory, int *device)
{
    if (rc != NVML_SUCCESS || memory == NULL || !process_serves())
        return 0;
    devices_name(); /* NVML may have been begun on a path that we did not see, or by the parent */
    *device = process_nvml_device(real, handle);
    return is_shared(real, handle) ? limit_of(*device) : 0;
}

/* What the driver keeps for itself is in NVML's total and not in CUDA's. */
static uint64_t kept_by_driver(const struct real *real, nvmlDevice handle)
{
    struct nvml_memory_v2 memory = {.version = NVML_MEMORY_V2};
    bool told = real->nvmlDeviceGetMemoryInfo_v2 != NULL && INSIDE(real->nvmlDeviceGetMemoryInfo_v2(handle, &memory)) == NVML_SUCCESS;
    return told ? memory.reserved : 0;
}

static void share_nvml(int device, uint64_t limit, uint64_t kept, uint64_t *total, uint64_t *free_bytes, uint64_t *used)
{
    uint64_t physical_free = *free_bytes;
    shared_allocations_sweep(&process_state.map);
    *total = lesser(kept < *total ? *total - kept : *total, limit);
    *used = lesser(memory_used_shown(&process_state.map, device), *total);
    *free_bytes = lesser(*total - *used, physical_free);
}

nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice handle, struct nvml_memory *memory)
{
    const struct real *real = real_nvml();
    nvmlReturn rc = INSIDE(real->nvmlDeviceGetMemoryInfo(handle, memory));
    int device = -1;
    uint64_t limit = nvml_limit(real, rc, handle, memory, &device);
    if (limit != 0)
        share_nvml(device, limit, kept_by_driver(real, handle), &memory->total, &memory->free, &memory->used);
    return rc;
}

nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice handle, struct nvml_memory_v2 *memory)
{
    const struct real *real = real_nvml();
    nvmlReturn rc = INSIDE(real->nvmlDeviceGetMemoryInfo_v2(handle, memory));
    int device = -1;
    uint64_t limit = nvml_limit(real, rc, handle, memory, &device);
    if (limit != 0) {
        share_nvml(device, limit, memory->reserved, &memory->total, &memory->free, &memory->used);
        memory->reserved = 0;
    }
    return rc;
}
