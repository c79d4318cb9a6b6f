/*
 * What holds device memory that was allocated otherwise: multicast objects, memory of other interfaces, and what is refused, for nobody
 * would tell when it lets go.
 */
#include "services/bindings.h"
#include "services/blocks.h"
#include "services/process_state.h"
#include "services/underway.h"

/* A multicast object is a handle like those of memory, and takes none (services/bindings.h). */
CUresult cuMulticastCreate(CUmemHandle *multicast, const void *prop)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMulticastCreate(multicast, prop));
    struct record made = {.device = -1, .kind = RECORD_HANDLE, .references = 1};
    if (rc == CUDA_SUCCESS && process_serves()) {
        made.key = *multicast;
        records_insert(&made);
    }
    return rc;
}

/* Which device's part of the object it is: the memory's own, where the call does not say. */
static CUdevice device_of(CUmemHandle memory)
{
    struct record record;
    bool ours = records_find(RECORD_HANDLE, memory, &record) && record.device >= 0;
    return ours ? process_state.ordinal_of[record.device] : -1;
}

static CUresult bound(CUresult rc, CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory)
{
    if (rc == CUDA_SUCCESS && process_serves())
        bindings_made(multicast, device >= 0 ? device : device_of(memory), at, memory);
    return rc;
}

static CUresult bound_address(const struct real *real, CUresult rc, CUmemHandle multicast, CUdevice device, size_t at, CUdeviceptr address)
{
    CUmemHandle memory;
    if (rc == CUDA_SUCCESS && process_serves() &&
        INSIDE(real->cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)address)) == CUDA_SUCCESS) {
        bound(rc, multicast, device, at, memory);
        INSIDE(real->cuMemRelease(memory));
    }
    return rc;
}

CUresult cuMulticastBindMem(CUmemHandle multicast, size_t at, CUmemHandle handle, size_t offset, size_t bytes, uint64_t flags)
{
    const struct real *real = real_cuda();
    return bound(INSIDE(real->cuMulticastBindMem(multicast, at, handle, offset, bytes, flags)), multicast, -1, at, handle);
}

CUresult cuMulticastBindMem_v2(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle handle, size_t offset, size_t bytes,
                               uint64_t flags)
{
    const struct real *real = real_cuda();
    return bound(INSIDE(real->cuMulticastBindMem_v2(multicast, device, at, handle, offset, bytes, flags)), multicast, device, at, handle);
}

CUresult cuMulticastBindAddr(CUmemHandle multicast, size_t at, CUdeviceptr address, size_t bytes, uint64_t flags)
{
    const struct real *real = real_cuda();
    return bound_address(real, INSIDE(real->cuMulticastBindAddr(multicast, at, address, bytes, flags)), multicast, -1, at, address);
}

CUresult cuMulticastBindAddr_v2(CUmemHandle multicast, CUdevice device, size_t at, CUdeviceptr address, size_t bytes, uint64_t flags)
{
    const struct real *real = real_cuda();
    return bound_address(real, INSIDE(real->cuMulticastBindAddr_v2(multicast, device, at, address, bytes, flags)), multicast, device, at,
                         address);
}

CUresult cuMulticastUnbind(CUmemHandle multicast, CUdevice device, size_t at, size_t bytes)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMulticastUnbind(multicast, device, at, bytes));
    if (rc == CUDA_SUCCESS && process_serves())
        bindings_undone(multicast, device, at);
    return rc;
}

/* Memory of Vulkan, DMA buffers and the like: whoever made it is not limited here, so who imports it pays. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const struct external_memory *described)
{
    const struct real *real = real_cuda();
    int device = memory != NULL && described != NULL && process_serves() ? process_current_device(real) : -1;
    if (device < 0)
        return INSIDE(real->cuImportExternalMemory(memory, described));
    uint64_t bytes = blocks_bytes(described->size);
    underway_begin(device);
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (process_reserve(device, bytes)) {
        rc = INSIDE(real->cuImportExternalMemory(memory, described));
        process_commit(rc, RECORD_EXTERNAL, (uint64_t)(uintptr_t)*memory, device, bytes);
    }
    underway_end(device);
    return rc;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    const struct real *real = real_cuda();
    if (!process_serves())
        return INSIDE(real->cuDestroyExternalMemory(memory));
    struct parting parting = process_part(RECORD_EXTERNAL, (uint64_t)(uintptr_t)memory);
    return process_parted(INSIDE(real->cuDestroyExternalMemory(memory)), &parting);
}

/* ---- refused where there is a limit ------------------------------------------------------------------------------ */

static bool limited(void)
{
    bool any = false;
    for (int device = 0; process_serves() && !any && device < REGION_DEVICES; device++)
        any = memory_limit(&process_state.map, device) != 0;
    return any;
}

/* Memory that is mapped into a sparse array lives on without its handle. */
static CUresult mapped(CUresult (*map)(struct array_mapping *, unsigned, CUstream), struct array_mapping *list, unsigned count, CUstream stream)
{
    for (unsigned i = 0; list != NULL && i < count; i++)
        if (list[i].operation == OPERATION_MAP && limited())
            return CUDA_ERROR_NOT_SUPPORTED;
    return INSIDE(map(list, count, stream));
}

CUresult cuMemMapArrayAsync(struct array_mapping *list, unsigned count, CUstream stream)
{
    return mapped(real_cuda()->cuMemMapArrayAsync, list, count, stream);
}

CUresult cuMemMapArrayAsync_ptsz(struct array_mapping *list, unsigned count, CUstream stream)
{
    return mapped(real_cuda()->cuMemMapArrayAsync_ptsz, list, count, stream);
}

CUresult cuLogicalEndpointBindMem(uint32_t endpoint, CUdevice device, uint64_t at, CUmemHandle handle, uint64_t offset, uint64_t bytes,
                                  uint64_t flags)
{
    const struct real *real = real_cuda();
    return limited() ? CUDA_ERROR_NOT_SUPPORTED
                     : INSIDE(real->cuLogicalEndpointBindMem(endpoint, device, at, handle, offset, bytes, flags));
}

CUresult cuLogicalEndpointBindAddr(uint32_t endpoint, CUdevice device, uint64_t at, void *address, uint64_t bytes, uint64_t flags)
{
    const struct real *real = real_cuda();
    return limited() ? CUDA_ERROR_NOT_SUPPORTED : INSIDE(real->cuLogicalEndpointBindAddr(endpoint, device, at, address, bytes, flags));
}

/* A process that was written out keeps its books, and comes back to what they say; on another card nobody would have booked it. */
CUresult cuCheckpointProcessRestore(int pid, const struct restore_args *arguments)
{
    const struct real *real = real_cuda();
    bool elsewhere = arguments != NULL && arguments->pairs != NULL && arguments->pair_count > 0;
    return elsewhere && limited() ? CUDA_ERROR_NOT_SUPPORTED : INSIDE(real->cuCheckpointProcessRestore(pid, arguments));
}
