/* Managed memory: advice is remembered for the whole allocation, told when asked for, and changes nothing. */
#include "cuda.h"

#include <string.h>

static CUresult managed_range(CUdeviceptr address, size_t bytes)
{
    struct block b;
    return bytes > 0 && heap_covers(address, bytes, &b) && block_managed(&b) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY, UNSET_ACCESSED_BY };
enum { HOST = -1, NO_DEVICE = -2 };

/* As the calls before CUDA 12.2 name a place. */
static CUmemLocation place_of(CUdevice device)
{
    return device == HOST ? (CUmemLocation){LOCATION_HOST, 0} : (CUmemLocation){LOCATION_DEVICE, device};
}

static CUresult there(CUmemLocation where)
{
    bool device = where.type == LOCATION_DEVICE;
    if (where.type < LOCATION_DEVICE || where.type > LOCATION_NUMA_CURRENT || (where.type == LOCATION_NUMA && where.id < 0))
        return CUDA_ERROR_INVALID_VALUE;
    return device && (where.id < 0 || where.id >= cu.device_count) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

struct advised { int advice; CUmemLocation where; };

static void take_advice(struct block *b, void *arg)
{
    const struct advised *a = arg;
    uint32_t bit = a->where.type == LOCATION_DEVICE ? 2u << a->where.id : 1;
    switch (a->advice) {
    case SET_READ_MOSTLY: case UNSET_READ_MOSTLY: b->advice.read_mostly = a->advice == SET_READ_MOSTLY; break;
    case SET_PREFERRED: b->advice.preferred = a->where; break;
    case UNSET_PREFERRED: b->advice.preferred = (CUmemLocation){0}; break;
    case SET_ACCESSED_BY: b->advice.accessed_by |= bit; break;
    default: b->advice.accessed_by &= ~bit; break;
    }
}

static CUresult advise(CUdeviceptr address, size_t bytes, int advice, CUmemLocation where)
{
    if (advice < SET_READ_MOSTLY || advice > UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    bool of_a_place = advice == SET_PREFERRED || advice >= SET_ACCESSED_BY;
    CUresult rc = of_a_place ? there(where) : CUDA_SUCCESS;
    if (rc == CUDA_SUCCESS)
        rc = managed_range(address, bytes);
    if (rc == CUDA_SUCCESS)
        heap_change(address, take_advice, &(struct advised){advice, where});
    return rc;
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device)
{
    ENTER_CONTEXT(cuMemAdvise, context);
    return advise(address, bytes, advice, place_of(device));
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location)
{
    ENTER_CONTEXT(cuMemAdvise_v2, context);
    return advise(address, bytes, advice, location);
}

static void note_prefetch(struct block *b, void *arg)
{
    b->advice.prefetched = *(const CUmemLocation *)arg;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation where)
{
    CUresult rc = there(where);
    if (rc == CUDA_SUCCESS)
        rc = managed_range(address, bytes);
    if (rc == CUDA_SUCCESS)
        heap_change(address, note_prefetch, &where);
    return rc;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    ENTER_CONTEXT(cuMemPrefetchAsync, context);
    return stream_of(stream, context) ? prefetch(address, bytes, place_of(device)) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream)
{
    ENTER_CONTEXT(cuMemPrefetchAsync_v2, context);
    if (!stream_of(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    return flags == 0 ? prefetch(address, bytes, location) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- several ranges by one call: all are looked at before any is touched ---- */

static CUresult ranges(const CUdeviceptr *addresses, const size_t *bytes, size_t count, unsigned long long flags, CUstream stream)
{
    struct context *context = context_current();
    CUresult rc = context_usable(context);
    if (rc)
        return rc;
    if (!stream_of(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!addresses || !bytes || count == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++)
        rc = managed_range(addresses[i], bytes[i]);
    return rc;
}

/* What is discarded holds anything at all from then on, so also what it held. */
EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count, unsigned long long flags, CUstream stream)
{
    ENTER(cuMemDiscardBatchAsync);
    return ranges(addresses, bytes, count, flags, stream);
}

/* Place i is of the ranges from first[i] on, until the next place's first. */
static CUresult prefetch_ranges(CUdeviceptr *addresses, size_t *bytes, size_t count, const CUmemLocation *places, const size_t *first,
                                size_t place_count, unsigned long long flags, CUstream stream)
{
    CUresult rc = ranges(addresses, bytes, count, flags, stream);
    if (rc)
        return rc;
    if (!places || !first || place_count == 0 || place_count > count || first[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < place_count; i++)
        rc = first[i] >= count || (i > 0 && first[i] <= first[i - 1]) ? CUDA_ERROR_INVALID_VALUE : there(places[i]);
    for (size_t i = 0, place = 0; rc == CUDA_SUCCESS && i < count; i++) {
        if (place + 1 < place_count && first[place + 1] == i)
            place++;
        rc = prefetch(addresses[i], bytes[i], places[place]);
    }
    return rc;
}

#define PREFETCHING(name) \
    EXPORT CUresult name(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *places, size_t *first, size_t place_count, \
                         unsigned long long flags, CUstream stream) \
    { \
        ENTER(name); \
        return prefetch_ranges(addresses, bytes, count, places, first, place_count, flags, stream); \
    }
PREFETCHING(cuMemPrefetchBatchAsync)
PREFETCHING(cuMemDiscardAndPrefetchBatchAsync)

/* ---- what was advised ---- */

enum { READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, PREFETCHED, PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID };

static int device_of(CUmemLocation where)
{
    return where.type == LOCATION_NONE ? NO_DEVICE : where.type == LOCATION_DEVICE ? where.id : HOST;
}

static void tell(int *out, size_t count, int attribute, const struct advice *a)
{
    size_t n = 0;
    switch (attribute) {
    case READ_MOSTLY: *out = a->read_mostly; break;
    case PREFERRED: *out = device_of(a->preferred); break;
    case PREFETCHED: *out = device_of(a->prefetched); break;
    case PREFERRED_TYPE: *out = a->preferred.type; break;
    case PREFERRED_ID: *out = a->preferred.type == LOCATION_HOST ? 0 : a->preferred.id; break;
    case PREFETCHED_TYPE: *out = a->prefetched.type; break;
    case PREFETCHED_ID: *out = a->prefetched.type == LOCATION_HOST ? 0 : a->prefetched.id; break;
    case ACCESSED_BY: /* devices, then the host, then nobody */
        for (int device = 0; device < cu.device_count && n < count; device++)
            if (a->accessed_by & 2u << device)
                out[n++] = device;
        if (a->accessed_by & 1 && n < count)
            out[n++] = HOST;
        while (n < count)
            out[n++] = NO_DEVICE;
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
