/* Linear, pitched and managed memory, and what is free. */
#define _GNU_SOURCE
#include "pool.h"

static CUresult allocate(struct context *context, CUdeviceptr *out, uint64_t bytes, enum memory_kind kind)
{
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult forbidden = capture_forbids();
    if (forbidden)
        return forbidden;
    struct block *block;
    CUresult rc = heap_alloc(context->card, context_current_handle(), bytes, kind, &block);
    if (rc == CUDA_SUCCESS)
        *out = block->address;
    return rc;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    ENTER_CONTEXT(cuMemAlloc_v2, context);
    return allocate(context, out, bytes, M_DEVICE);
}

/* The names without a version are of the days of 32-bit sizes and addresses. */
EXPORT CUresult cuMemAlloc(unsigned int *out, unsigned int bytes)
{
    (void)bytes;
    ENTER(cuMemAlloc);
    return out ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    ENTER_CONTEXT(cuMemAllocPitch_v2, context);
    if (!pitch || width == 0 || height == 0 || width > 1ull << 40 || height > 1ull << 40 ||
        (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + 511) & ~(size_t)511;
    if (height > (1ull << 60) / row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = allocate(context, out, row * height, M_DEVICE);
    if (rc == CUDA_SUCCESS)
        *pitch = row;
    return rc;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT(cuMemAllocManaged, context);
    if (flags != 1 && flags != 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (!card_at(context->card)->managed_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    return allocate(context, out, bytes, M_MANAGED);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree_v2);
    if (address == 0)
        return CUDA_SUCCESS;
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    struct block b;
    if (!heap_find(address, &b) || b.address != address)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = context_wait(context); /* freeing waits for what may still use it */
    if (rc)
        return rc;
    if (b.kind == M_POOL && !b.owner) { /* a graph's: free for its next run */
        graph_memory_unuse(address);
        return CUDA_SUCCESS;
    }
    if (b.kind == M_POOL)
        return pool_free_now(address);
    return b.kind == M_DEVICE || b.kind == M_MANAGED ? heap_free(address, b.kind) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemFree(unsigned int address)
{
    return cuMemFree_v2(address);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER_CONTEXT(cuMemGetInfo_v2, context);
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    process_reap(false);
    unsigned lane = account_at(context->card, cu.slot)->lane;
    uint64_t capacity = memory_capacity(context->card, lane), used = memory_used(context->card, lane);
    uint64_t left = used < capacity ? capacity - used : 0, allowed = memory_allowed(context->card, cu.slot);
    *free_bytes = left < allowed ? left : allowed;
    *total = lane ? capacity : card_at(context->card)->memory_bytes - card_at(context->card)->reserved_bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    size_t f, t;
    CUresult rc = cuMemGetInfo_v2(&f, &t);
    if (rc == CUDA_SUCCESS && (!free_bytes || !total))
        return CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *free_bytes = f > UINT32_MAX ? UINT32_MAX : (unsigned)f;
        *total = t > UINT32_MAX ? UINT32_MAX : (unsigned)t;
    }
    return rc;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    ENTER_CONTEXT(cuMemGetAddressRange_v2, context);
    struct block b;
    if (!heap_find(address, &b) || b.kind == M_REGISTERED || b.kind == M_RESERVED)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = b.address;
    if (size)
        *size = b.size;
    return CUDA_SUCCESS;
}
