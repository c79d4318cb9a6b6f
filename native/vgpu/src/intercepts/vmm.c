/*
 * Virtual memory management (spec hami-core 7.6): a handle is physical memory. It is booked once, on the device that its
 * properties name and never on that of the current context, and given back when it is neither referred to nor mapped.
 */
#include "services/guest.h"
#include "services/underway.h"

CUresult cuMemCreate(CUmemHandle *handle, size_t bytes, const struct mem_prop *prop, uint64_t flags)
{
    const struct real *real = real_cuda();
    bool on_device = prop != NULL && prop->location.type == LOCATION_DEVICE;
    int device = handle != NULL && on_device && bytes != 0 && guest_serves() ? guest_device(prop->location.id) : -1;
    if (device < 0)
        return INSIDE(real->cuMemCreate(handle, bytes, prop, flags));
    underway_begin(device);
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (guest_reserve(device, bytes)) {
        rc = INSIDE(real->cuMemCreate(handle, bytes, prop, flags));
        guest_settle(rc, RECORD_HANDLE, *handle, device, bytes);
    }
    underway_end(device);
    return rc;
}

static void give_back(const struct record *ended)
{
    if (ended->charged)
        guest_release(ended->device, ended->bytes);
}

/*
 * Release and unmap let the driver go first: the handle's number cannot be given out again before it is free, and a count
 * that is late errs on the safe side.
 */
CUresult cuMemRelease(CUmemHandle handle)
{
    const struct real *real = real_cuda();
    if (!guest_serves())
        return INSIDE(real->cuMemRelease(handle));
    struct record ended, before;
    bool last = records_find(RECORD_HANDLE, handle, &before) && before.references == 1 && before.mappings == 0;
    /* The last hold: take the record first, for the number may be reused the moment the driver is done. */
    bool taken = last && records_count(RECORD_HANDLE, handle, -1, 0, &ended);
    CUresult rc = INSIDE(real->cuMemRelease(handle));
    if (taken && rc != CUDA_SUCCESS)
        records_insert(&before);
    else if (taken || (rc == CUDA_SUCCESS && records_count(RECORD_HANDLE, handle, -1, 0, &ended)))
        give_back(&ended);
    return rc;
}

CUresult cuMemRetainAllocationHandle(CUmemHandle *handle, void *address)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemRetainAllocationHandle(handle, address));
    struct record ended;
    if (rc == CUDA_SUCCESS && guest_serves())
        records_count(RECORD_HANDLE, *handle, 1, 0, &ended);
    return rc;
}

/* The exporter pays; the record only keeps a later release from giving back what was never booked here. */
CUresult cuMemImportFromShareableHandle(CUmemHandle *handle, void *os_handle, int type)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemImportFromShareableHandle(handle, os_handle, type));
    struct record ended, present;
    if (rc != CUDA_SUCCESS || !guest_serves())
        return rc;
    if (records_find(RECORD_HANDLE, *handle, &present)) { /* its own export came back */
        records_count(RECORD_HANDLE, *handle, 1, 0, &ended);
    } else {
        struct record imported = {.key = *handle, .kind = RECORD_HANDLE, .references = 1};
        records_insert(&imported);
    }
    return rc;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle, uint64_t flags)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemMap(address, bytes, offset, handle, flags));
    if (rc != CUDA_SUCCESS || !guest_serves())
        return rc;
    struct record ended, mapping = {.key = address, .bytes = bytes, .owner = handle, .kind = RECORD_MAPPING, .references = 1};
    if (records_insert(&mapping))
        records_count(RECORD_HANDLE, handle, 0, 1, &ended);
    return rc;
}

/* One call may undo several mappings that lie side by side. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemUnmap(address, bytes));
    if (rc != CUDA_SUCCESS || !guest_serves())
        return rc;
    struct record mapping, ended;
    for (CUdeviceptr at = address; at < address + bytes && records_remove(RECORD_MAPPING, at, &mapping); at += mapping.bytes)
        if (records_count(RECORD_HANDLE, mapping.owner, 0, -1, &ended))
            give_back(&ended);
    return rc;
}
