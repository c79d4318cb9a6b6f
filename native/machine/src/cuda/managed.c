/* Managed memory: advice is remembered for the whole allocation, told when asked for, and changes nothing. */
#include "cuda.h"

#include <string.h>

static CUresult managed_range(CUdeviceptr address, size_t bytes)
{
    struct block b;
    return bytes > 0 && heap_covers(address, bytes, &b) && b.kind == M_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool device_or_host(int device)
{
    return device == -1 || (device >= 0 && device < cu.device_count);
}

enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY, UNSET_ACCESSED_BY };
enum { HOST = -1, NOWHERE = -2, LOCATION_DEVICE = 1, LOCATION_HOST = 2 };
static int place_of(CUmemLocation location)
{
    return location.type == LOCATION_DEVICE ? location.id : HOST;
}

struct advised { int advice, where; };

static void take_advice(struct block *b, void *arg)
{
    const struct advised *a = arg;
    uint32_t bit = 1u << (a->where + 1);
    switch (a->advice) {
    case SET_READ_MOSTLY: case UNSET_READ_MOSTLY: b->advice.read_mostly = a->advice == SET_READ_MOSTLY; break;
    case SET_PREFERRED: b->advice.preferred = (int8_t)(a->where - NOWHERE); break;
    case UNSET_PREFERRED: b->advice.preferred = 0; break;
    case SET_ACCESSED_BY: b->advice.accessed_by |= bit; break;
    default: b->advice.accessed_by &= ~bit; break;
    }
}

static CUresult advise(CUdeviceptr address, size_t bytes, int advice, int where)
{
    if (!device_or_host(where))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult rc = managed_range(address, bytes);
    if (rc == CUDA_SUCCESS)
        heap_change(address, take_advice, &(struct advised){advice, where});
    return rc;
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device)
{
    ENTER_CONTEXT(cuMemAdvise, context);
    return advice >= 1 && advice <= 6 ? advise(address, bytes, advice, advice <= UNSET_READ_MOSTLY ? HOST : device) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location)
{
    ENTER_CONTEXT(cuMemAdvise_v2, context);
    return advice >= 1 && advice <= 6 ? advise(address, bytes, advice, place_of(location)) : CUDA_ERROR_INVALID_VALUE;
}

static void note_prefetch(struct block *b, void *arg)
{
    b->advice.prefetched = (int8_t)(*(int *)arg - NOWHERE);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, int where)
{
    if (!device_or_host(where))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult rc = managed_range(address, bytes);
    if (rc == CUDA_SUCCESS)
        heap_change(address, note_prefetch, &where);
    return rc;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    ENTER_CONTEXT(cuMemPrefetchAsync, context);
    if (!stream_of(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    return prefetch(address, bytes, device);
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream)
{
    ENTER_CONTEXT(cuMemPrefetchAsync_v2, context);
    if (!stream_of(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(address, bytes, place_of(location));
}

enum { READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, PREFETCHED, PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID };

static int type_of(int where)
{
    return where == NOWHERE ? 0 : where == HOST ? LOCATION_HOST : LOCATION_DEVICE;
}

static void tell(int *out, size_t count, int attribute, const struct advice *a)
{
    int preferred = a->preferred + NOWHERE, prefetched = a->prefetched + NOWHERE;
    size_t n = 0;
    switch (attribute) {
    case READ_MOSTLY: *out = a->read_mostly; break;
    case PREFERRED: *out = preferred; break;
    case PREFETCHED: *out = prefetched; break;
    case PREFERRED_TYPE: *out = type_of(preferred); break;
    case PREFERRED_ID: *out = preferred < 0 ? 0 : preferred; break;
    case PREFETCHED_TYPE: *out = type_of(prefetched); break;
    case PREFETCHED_ID: *out = prefetched < 0 ? 0 : prefetched; break;
    case ACCESSED_BY: /* devices, then the host, then nobody */
        for (int device = 0; device < cu.device_count && n < count; device++)
            if (a->accessed_by & 2u << device)
                out[n++] = device;
        if (a->accessed_by & 1 && n < count)
            out[n++] = HOST;
        while (n < count)
            out[n++] = NOWHERE;
        break;
    default: break;
    }
}

EXPORT CUresult cuMemRangeGetAttribute(int *out, size_t size, int attribute, CUdeviceptr address, size_t bytes)
{
    ENTER_CONTEXT(cuMemRangeGetAttribute, context);
    if (!out || size < 4 || size % 4 || (size > 4 && attribute != ACCESSED_BY) || attribute < 1 || attribute > 8)
        return CUDA_ERROR_INVALID_VALUE;
    struct block b;
    CUresult rc = managed_range(address, bytes);
    if (rc == CUDA_SUCCESS && heap_find(address, &b))
        tell(out, size / sizeof *out, attribute, &b.advice);
    return rc;
}

EXPORT CUresult cuMemRangeGetAttributes(int **out, size_t *sizes, int *attributes, size_t count, CUdeviceptr address, size_t bytes)
{
    ENTER(cuMemRangeGetAttributes);
    if (!out || !sizes || !attributes || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < count && rc == CUDA_SUCCESS; i++)
        rc = cuMemRangeGetAttribute(out[i], sizes[i], attributes[i], address, bytes);
    return rc;
}
