/* Host memory that the card can reach, and what a pointer is. */
#define _GNU_SOURCE
#include "objects.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ull

static CUresult allocate(struct context *context, void **out, size_t bytes, unsigned flags)
{
    if (!out || bytes == 0 || flags > 0xf)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > 1ull << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t room = (bytes + PAGE - 1) & ~(PAGE - 1);
    void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block b = {.address = (uint64_t)at, .size = bytes, .physical = room, .data = at, .kind = M_HOST, .card = context->card,
                      .flags = flags, .context = context_current_handle()};
    if (!heap_enter(b)) {
        munmap(at, room);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = at;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT(cuMemHostAlloc, context);
    return allocate(context, out, bytes, flags);
}

EXPORT CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    ENTER_CONTEXT(cuMemAllocHost_v2, context);
    return allocate(context, out, bytes, 0);
}

EXPORT CUresult cuMemAllocHost(void **out, unsigned int bytes)
{
    return cuMemAllocHost_v2(out, bytes);
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER(cuMemFreeHost);
    struct block b;
    if (!address)
        return CUDA_SUCCESS;
    if (!heap_leave((uint64_t)address, M_HOST, &b))
        return CUDA_ERROR_INVALID_VALUE;
    munmap(b.data, b.physical);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT(cuMemHostRegister_v2, context);
    unsigned char first, last;
    if (!address || bytes == 0 || flags > 0xf || (uint64_t)address + bytes < (uint64_t)address ||
        copy_bytes(&first, address, 1) || copy_bytes(&last, (char *)address + bytes - 1, 1))
        return CUDA_ERROR_INVALID_VALUE;
    struct block b = {.address = (uint64_t)address, .size = bytes, .data = address, .kind = M_REGISTERED, .card = context->card,
                      .flags = flags, .context = context_current_handle()};
    return heap_enter(b) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

EXPORT CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(address, bytes, flags);
}

EXPORT CUresult cuMemHostUnregister(void *address)
{
    ENTER(cuMemHostUnregister);
    struct block b;
    if (heap_leave((uint64_t)address, M_REGISTERED, &b))
        return CUDA_SUCCESS;
    bool inside = heap_find((uint64_t)address, &b) && b.kind == M_REGISTERED; /* and not its beginning */
    return inside ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static bool on_host(const struct block *b)
{
    return b->kind == M_HOST || b->kind == M_REGISTERED || b->on_host;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
    ENTER_CONTEXT(cuMemHostGetDevicePointer_v2, context);
    struct block b;
    if (!out || flags != 0 || !heap_find((uint64_t)address, &b) || !on_host(&b))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (uint64_t)address; /* one address space */
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *address)
{
    ENTER_CONTEXT(cuMemHostGetFlags, context);
    struct block b;
    if (!flags || !heap_find((uint64_t)address, &b) || b.kind != M_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = b.flags;
    return CUDA_SUCCESS;
}

/* ---- pointer attributes ---- */

enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, SYNC_MEMOPS = 6, BUFFER_ID = 7, IS_MANAGED = 8,
       DEVICE_ORDINAL = 9, IPC_CAPABLE = 10, RANGE_START = 11, RANGE_SIZE = 12, MAPPED = 13, ALLOWED_HANDLES = 14, RDMA_CAPABLE = 15,
       ACCESS_FLAGS = 16, MEMPOOL = 17 };

static int ordinal_of(unsigned card)
{
    for (int i = 0; i < cu.device_count; i++)
        if (cu.devices[i].card == card)
            return i;
    return -1;
}

#define PUT(type, value) do { type put_ = (type)(value); memcpy(out, &put_, sizeof put_); return CUDA_SUCCESS; } while (0)

static CUresult attribute_of(void *out, int attribute, CUdeviceptr address, const struct block *b)
{
    bool host = on_host(b);
    switch (attribute) {
    case CONTEXT: PUT(CUcontext, b->context);
    case MEMORY_TYPE: PUT(unsigned, host ? 1 : 2);
    case DEVICE_POINTER: PUT(CUdeviceptr, address);
    case HOST_POINTER:
        if (!host && !block_managed(b))
            return CUDA_ERROR_INVALID_VALUE;
        PUT(void *, address);
    case SYNC_MEMOPS: PUT(int, b->flags >> 31);
    case BUFFER_ID: PUT(unsigned long long, b->id);
    case IS_MANAGED: PUT(int, block_managed(b));
    case DEVICE_ORDINAL: PUT(int, ordinal_of(b->card));
    case IPC_CAPABLE: PUT(int, b->kind == M_DEVICE && card_at(b->card)->ipc_capable);
    case RANGE_START: PUT(CUdeviceptr, b->address);
    case RANGE_SIZE: PUT(size_t, b->size);
    case MAPPED: PUT(int, b->kind != M_RESERVED);
    case ALLOWED_HANDLES: PUT(unsigned long long, b->kind == M_MAPPED ? 1 : 0);
    case RDMA_CAPABLE: PUT(int, b->kind == M_DEVICE || b->kind == M_MAPPED);
    case ACCESS_FLAGS: PUT(int, 3);
    case MEMPOOL: PUT(void *, b->kind == M_POOL ? b->owner : NULL);
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    ENTER(cuPointerGetAttribute);
    struct block b;
    if (!out || !heap_find(address, &b))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(out, attribute, address, &b);
}

/* A pointer the driver does not know is no error here: its attributes are zero. */
EXPORT CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **out, CUdeviceptr address)
{
    ENTER(cuPointerGetAttributes);
    if (count == 0 || !attributes || !out)
        return CUDA_ERROR_INVALID_VALUE;
    struct block b;
    bool known = heap_find(address, &b);
    for (unsigned i = 0; i < count; i++) {
        if (!out[i])
            return CUDA_ERROR_INVALID_VALUE;
        if (known && attribute_of(out[i], attributes[i], address, &b) == CUDA_SUCCESS)
            continue;
        bool small = attributes[i] == MEMORY_TYPE || attributes[i] == SYNC_MEMOPS || attributes[i] == IS_MANAGED ||
                     attributes[i] == DEVICE_ORDINAL || attributes[i] == IPC_CAPABLE || attributes[i] == MAPPED || attributes[i] == RDMA_CAPABLE;
        memset(out[i], 0, small ? 4 : 8);
        if (attributes[i] == DEVICE_ORDINAL)
            *(int *)out[i] = -2;
    }
    return CUDA_SUCCESS;
}

static void set_sync(struct block *b, void *arg)
{
    b->flags = (b->flags & 0x7fffffffu) | (*(int *)arg ? 1u << 31 : 0);
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address)
{
    ENTER(cuPointerSetAttribute);
    int on;
    if (!value || attribute != SYNC_MEMOPS || copy_bytes(&on, value, sizeof on) || !heap_change(address, set_sync, &on))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
