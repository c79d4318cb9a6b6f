/*
 * What holds device memory that was allocated otherwise: multicast objects, memory of other interfaces, and what is refused, for nobody
 * would tell when it lets go.
 */
#include "intercepts/entries.h"

#include "services/bindings.h"
#include "services/process_state.h"

/* A multicast object is a handle like those of memory, and takes none (services/bindings.h). */
void multicast_created(CUmemHandle multicast)
{
    records_insert(&(struct record){.key = multicast, .device = -1, .kind = RECORD_HANDLE, .references = 1});
}

/* Which device's part of the object it is: the memory's own, where the call does not say. */
static CUdevice device_of(CUmemHandle memory)
{
    struct record record;
    bool ours = records_find(RECORD_HANDLE, memory, &record) && record.device >= 0;
    return ours ? process_state.ordinal_of[record.device] : -1;
}

void multicast_bound(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory)
{
    bindings_made(multicast, device >= 0 ? device : device_of(memory), at, memory);
}

void multicast_bound_at(CUmemHandle multicast, CUdevice device, size_t at, CUdeviceptr address)
{
    CUmemHandle memory;
    if (CUDA(cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)address)) != CUDA_SUCCESS)
        return;
    multicast_bound(multicast, device, at, memory);
    CUDA(cuMemRelease(memory));
}

/* Memory of Vulkan, DMA buffers and the like: whoever made it is not limited here, so who imports it pays. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const struct external_memory *described)
{
    int device = memory != NULL && described != NULL && process_serves() ? process_current_device() : -1;
    if (device < 0)
        return CUDA(cuImportExternalMemory(memory, described));
    return BOOKED(device, blocks_bytes(described->size), RECORD_EXTERNAL, *memory, CUDA(cuImportExternalMemory(memory, described)));
}

/* ---- refused where there is a limit ------------------------------------------------------------------------------ */

bool any_memory_limit(void)
{
    bool any = false;
    for (int device = 0; process_serves() && !any && device < REGION_DEVICES; device++)
        any = memory_limit(&process_state.map, device) != 0;
    return any;
}

/* Memory that is mapped into a sparse array lives on without its handle. */
bool maps_memory(const struct array_mapping *list, unsigned count)
{
    for (unsigned i = 0; list != NULL && i < count; i++)
        if (list[i].operation == OPERATION_MAP)
            return true;
    return false;
}
