/*
 * Memory that another process allocated: by IPC handle and by pointer into a pool. Whoever is told by the table of shared allocations pays together
 * with the exporter (services/shared_allocation.h); who is not pays for himself, also for what comes out of another's pool.
 */
#include "intercepts/entries.h"

#include "services/process_state.h"
#include "services/shared_allocation.h"

/* A handle stands for the whole allocation, wherever in it the pointer leads. */
static CUdeviceptr base_of(CUdeviceptr pointer)
{
    CUdeviceptr base = pointer;
    bool told = CUDA(cuMemGetAddressRange_v2(&base, NULL, pointer)) == CUDA_SUCCESS;
    return told ? base : pointer;
}

void ipc_exported(const void *handle, CUdeviceptr pointer)
{
    shared_allocation_exported_bytes(RECORD_LINEAR, base_of(pointer), handle);
}

static int device_of(CUdeviceptr pointer)
{
    int ordinal = -1;
    bool told = CUDA(cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, pointer)) == CUDA_SUCCESS;
    return told ? process_device(ordinal) : process_current_device();
}

static uint64_t whole_blocks(CUdeviceptr pointer)
{
    size_t bytes = 0;
    if (CUDA(cuMemGetAddressRange_v2(NULL, &bytes, pointer)) != CUDA_SUCCESS)
        bytes = 1;
    return blocks_bytes(bytes);
}

/* False: there is no room for what others let go of. */
static bool charged(CUdeviceptr pointer)
{
    int device = device_of(pointer);
    uint64_t bytes = whole_blocks(pointer);
    if (device < 0)
        return true;
    if (!process_reserve(device, bytes))
        return false;
    process_note(RECORD_LINEAR, pointer, device, bytes, true);
    return true;
}

CUresult ipc_opened(CUresult (*open)(CUdeviceptr *, struct ipc_handle, unsigned), CUdeviceptr *pointer,
                       struct ipc_handle handle, unsigned flags)
{
    if (!process_serves())
        return INSIDE(open(pointer, handle, flags));
    struct shared_allocation what;
    uint32_t shared_allocation = shared_allocation_of_bytes(&handle, &what); /* held before the driver is asked: its exporter may let go at any moment */
    CUresult rc = INSIDE(open(pointer, handle, flags));
    if (rc != CUDA_SUCCESS) {
        if (shared_allocation != 0)
            shared_allocation_let_go(shared_allocation);
    } else if (shared_allocation != 0) {
        struct record import = {.key = *pointer, .bytes = what.bytes, .owner = process_current_context(), .device = what.device,
                                .kind = RECORD_LINEAR, .charged = 1, .references = 1, .shared_allocation = shared_allocation};
        struct record present;
        if (records_find(RECORD_LINEAR, *pointer, &present)) { /* drivers may answer a second time with the same address */
            shared_allocation_let_go(shared_allocation);
            records_join(&present);
        } else {
            records_insert(&import);
        }
    } else if (!charged(*pointer)) {
        CUDA(cuIpcCloseMemHandle(*pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    if (!process_serves())
        return CUDA(cuIpcCloseMemHandle(pointer));
    struct parting parting = process_part(RECORD_LINEAR, pointer);
    CUresult rc = CUDA(cuIpcCloseMemHandle(pointer));
    if (rc != CUDA_SUCCESS || parting.record.references <= 1)
        return process_parted(rc, &parting);
    parting.record.references--; /* it was opened more than once */
    records_insert(&parting.record);
    underway_end(parting.record.device);
    return rc;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemPool pool, struct ipc_handle *data)
{
    CUresult rc = CUDA(cuMemPoolImportPointer(pointer, pool, data));
    if (rc == CUDA_SUCCESS && process_serves() && !charged(*pointer)) {
        CUDA(cuMemFree_v2(*pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}
