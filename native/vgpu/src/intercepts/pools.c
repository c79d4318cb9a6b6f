/* The entries of memory pools; what they do to the books is in pools.c. */
#include "services/process_state.h"
#include "services/pools.h"

static CUresult call_async(const struct real *real, CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    (void)pool;
    return real->cuMemAllocAsync(pointer, bytes, stream);
}

static CUresult call_async_ptsz(const struct real *real, CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    (void)pool;
    return real->cuMemAllocAsync_ptsz(pointer, bytes, stream);
}

static CUresult call_from_pool(const struct real *real, CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    return real->cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}

static CUresult call_from_pool_ptsz(const struct real *real, CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    return real->cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return pools_allocate(real_cuda(), call_async, pointer, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return pools_allocate(real_cuda(), call_async_ptsz, pointer, bytes, NULL, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    return pools_allocate(real_cuda(), call_from_pool, pointer, bytes, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream)
{
    return pools_allocate(real_cuda(), call_from_pool_ptsz, pointer, bytes, pool, stream, true);
}

/* Blocks of pools have no records; a block of cuMemAlloc may be freed this way too. */
static CUresult free_async(CUresult (*call)(CUdeviceptr, CUstream), CUdeviceptr pointer, CUstream stream)
{
    if (!process_serves())
        return INSIDE(call(pointer, stream));
    struct parting parting = process_part(RECORD_LINEAR, pointer);
    return process_parted(INSIDE(call(pointer, stream)), &parting);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return free_async(real_cuda()->cuMemFreeAsync, pointer, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return free_async(real_cuda()->cuMemFreeAsync_ptsz, pointer, stream);
}

/* Managed memory can come to the card at any moment, wherever it is to be at first. */
static int device_of(const struct real *real, const struct pool_props *props)
{
    int device = process_location(&props->location);
    return device < 0 && props->type == ALLOCATION_MANAGED ? process_current_device(real) : device;
}

CUresult cuMemPoolCreate(CUmemPool *handle, const struct pool_props *props)
{
    const struct real *real = real_cuda();
    CUresult rc = INSIDE(real->cuMemPoolCreate(handle, props));
    if (rc == CUDA_SUCCESS && props != NULL && process_serves())
        pools_made(*handle, device_of(real, props));
    return rc;
}

CUresult cuMemPoolDestroy(CUmemPool handle)
{
    const struct real *real = real_cuda();
    return process_serves() ? pools_destroy(real, handle) : INSIDE(real->cuMemPoolDestroy(handle));
}

static CUresult settled(const struct real *real, CUresult rc, CUmemPool handle)
{
    if (rc == CUDA_SUCCESS && process_serves())
        pools_changed(real, handle);
    return rc;
}

CUresult cuMemPoolTrimTo(CUmemPool handle, size_t keep)
{
    const struct real *real = real_cuda();
    return settled(real, INSIDE(real->cuMemPoolTrimTo(handle, keep)), handle);
}

CUresult cuMemPoolSetAttribute(CUmemPool handle, int attribute_id, void *value)
{
    const struct real *real = real_cuda();
    return settled(real, INSIDE(real->cuMemPoolSetAttribute(handle, attribute_id, value)), handle);
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    const struct real *real = real_cuda();
    pools_graph_trimmed();
    CUresult rc = INSIDE(real->cuDeviceGraphMemTrim(ordinal));
    int device = rc == CUDA_SUCCESS && process_serves() ? process_device(ordinal) : -1;
    if (device >= 0)
        pools_reconcile(device, false);
    return rc;
}
