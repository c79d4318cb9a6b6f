/* First use, and what the program is told about memory: one story from CUDA and NVML (HAMi-core src/nvml/hook.c, HAMi-core
 * src/allocator/allocator.c). */
#include "intercepts/entries.h"

#include "book/records.h"
#include "core/quiet.h"
#include "core/numbers.h"
#include "core/shared_allocations.h"
#include "core/slots.h"
#include "services/process_state.h"
#include "services/nvml.h"

#include <errno.h>
#include <string.h>

/* ---- first use --------------------------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    CUresult rc = CUDA(cuInit(flags));
    KEEP_ERRNO;
    if (rc == CUDA_SUCCESS && process_serves() && process_state.device_count == 0)
        devices_from_cuda();
    return rc;
}

nvmlReturn nvml_began(nvmlReturn rc)
{
    KEEP_ERRNO;
    if (rc == NVML_SUCCESS && inside_driver == 0)
        own_nvml_program_began();
    if (rc == NVML_SUCCESS && process_serves())
        devices_name();
    return rc;
}

nvmlReturn nvmlShutdown(void)
{
    return inside_driver > 0 ? real_nvml()->nvmlShutdown() : own_nvml_program_ends();
}

/* ---- what CUDA tells --------------------------------------------------------------------------------------------- */

/* The limit when there is one, else 0. */
static uint64_t limit_of(int device)
{
    return device < 0 ? 0 : memory_limit(&process_state.map, device);
}

uint64_t shown_total(CUdevice ordinal, uint64_t bytes)
{
    uint64_t limit = limit_of(process_device(ordinal));
    return limit != 0 ? min_u64(bytes, limit) : bytes;
}

/*
 * total and free of the card become those of the container; never an error of our own. Memory beyond the card is nothing to be
 * counted on, whatever the limit: linear memory may get some where the driver has none left (CUDA_OVERSUBSCRIBE).
 */
struct shown shown_memory(uint64_t free_bytes, uint64_t total)
{
    int device = process_current_device();
    if (device >= 0)
        contexts_notice(device);
    uint64_t limit = limit_of(device);
    if (limit == 0)
        return (struct shown){free_bytes, total};
    shared_allocations_sweep(&process_state.map); /* whoever sizes what it does by what is free is not to count the dead */
    uint64_t used = memory_used(&process_state.map, device), most = min_u64(total, limit);
    return (struct shown){min_u64(sub_u64(most, used), free_bytes), most};
}

/*
 * What stands in for device memory is told as such: a program that asked for that takes what it sees by its kind. CUDA documents the value as "a
 * boolean" of no size, and callers give a byte or a word: its first byte alone is touched.
 */
void show_pointer(unsigned count, const int *attributes, void *const *values, CUdeviceptr pointer)
{
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr base;
        struct record record;
        if (attributes[i] == POINTER_IS_MANAGED && *(unsigned char *)values[i] != 0 &&
            CUDA(cuMemGetAddressRange_v2(&base, NULL, pointer)) == CUDA_SUCCESS && records_find(RECORD_LINEAR, base, &record) && record.mappings > 0)
            *(unsigned char *)values[i] = 0;
    }
}

/* ---- what NVML tells --------------------------------------------------------------------------------------------- */

/* A card beside the share shows itself as it is: the limit that the region holds ready for it is nobody's size. */
static bool is_shared(nvmlDevice handle)
{
    char uuid[REGION_UUID_BYTES];
    return process_state.config.cards[0] == '\0' || NVML(nvmlDeviceGetUUID(handle, uuid, sizeof uuid)) != NVML_SUCCESS ||
           strstr(process_state.config.cards, uuid) != NULL;
}

/* What the driver keeps for itself is in NVML's total and not in CUDA's. */
static uint64_t kept_by_driver(nvmlDevice handle)
{
    struct nvml_memory_v2 memory = {.version = NVML_MEMORY_V2};
    bool told = NVML(nvmlDeviceGetMemoryInfo_v2(handle, &memory)) == NVML_SUCCESS;
    return told ? memory.reserved : 0;
}

void show_nvml(nvmlDevice handle, uint64_t *reserved, uint64_t *total, uint64_t *free_bytes, uint64_t *used)
{
    devices_name(); /* NVML may have been begun on a path that we did not see, or by the parent */
    int device = process_nvml_device(handle);
    uint64_t limit = is_shared(handle) ? limit_of(device) : 0, physical_free = *free_bytes;
    if (limit == 0)
        return;
    shared_allocations_sweep(&process_state.map);
    *total = min_u64(sub_u64(*total, reserved != NULL ? *reserved : kept_by_driver(handle)), limit);
    *used = min_u64(memory_used_shown(&process_state.map, device), *total);
    *free_bytes = min_u64(*total - *used, physical_free);
    if (reserved != NULL)
        *reserved = 0;
}
