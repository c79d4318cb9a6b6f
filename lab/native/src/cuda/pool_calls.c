/* The calls of stream-ordered memory; pool.c is what they work on. */
#define _GNU_SOURCE
#include "pool.h"

static CUresult alloc_async(struct context *context, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct stream *s = stream_of(stream, context);
    struct pool *p = handle_get(K_POOL, pool);
    if (!s || !p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) { /* nothing, and freeing it is no mistake */
        *out = 0;
        return CUDA_SUCCESS;
    }
    if (atomic_load(&s->capture)) {
        struct node what = {.type = N_ALLOC, .alloc = {.bytesize = bytes, .poolProps = {.location = {LOCATION_DEVICE, p->device}}}};
        CUresult rc = graph_memory_reserve(&what.alloc, p->card);
        if (rc == CUDA_SUCCESS)
            rc = capture_node(s, &what);
        if (rc == CUDA_SUCCESS)
            *out = what.alloc.dptr;
        return rc;
    }
    return pool_alloc(p, bytes, context_current_handle(), out);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    ENTER_CONTEXT(cuMemAllocAsync, context);
    if (!card_at(context->card)->pool_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct stream *s = stream_of(stream, context);
    struct context *of = s ? context_of(s->context) : NULL;
    return of ? alloc_async(of, out, bytes, pool_current((CUmemLocation){LOCATION_DEVICE, of->device}, ALLOCATION_PINNED), stream) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ENTER_CONTEXT(cuMemAllocFromPoolAsync, context);
    return alloc_async(context, out, bytes, pool, stream);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    ENTER_CONTEXT(cuMemFreeAsync, context);
    struct stream *s = stream_of(stream, context);
    struct block b;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (address == 0)
        return CUDA_SUCCESS;
    if (!heap_find(address, &b) || b.address != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&s->capture))
        return capture_node(s, &(struct node){.type = N_FREE, .freed = address});
    if (b.kind == M_POOL && !b.owner) {
        graph_memory_unuse(address);
        return CUDA_SUCCESS;
    }
    if (b.kind == M_POOL)
        return pool_free_now(address);
    return b.kind == M_DEVICE || b.kind == M_IMPORTED ? heap_free(address, b.kind) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    ENTER(cuMemPoolCreate);
    if (!out || !props)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = pool_props_right(props);
    if (rc)
        return rc;
    struct pool *p = pool_new(props);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = handle_of(K_POOL, p);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER(cuMemPoolDestroy);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (p->built_in)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&p->mutex);
    pool_trim(p, 0);
    uint64_t held = p->reserved; /* blocks still in use keep their pieces until the process ends */
    pthread_mutex_unlock(&p->mutex);
    if (held == 0)
        handle_drop(K_POOL, pool);
    else
        p->threshold = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    ENTER(cuMemPoolTrimTo);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&p->mutex);
    pool_trim(p, keep);
    pthread_mutex_unlock(&p->mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    ENTER(cuMemPoolSetAttribute);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 1 || attribute > 8 || attribute == 5 || attribute == 7)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t v = attribute <= 3 ? *(const uint32_t *)value : *(const uint64_t *)value;
    if ((attribute == 6 || attribute == 8) && v != 0)
        return CUDA_ERROR_INVALID_VALUE; /* high-water marks can only be reset */
    pthread_mutex_lock(&p->mutex);
    if (attribute <= 3)
        p->reuse[attribute - 1] = v;
    else if (attribute == 4)
        p->threshold = v;
    else if (attribute == 6)
        p->reserved_high = p->reserved;
    else
        p->used_high = p->used;
    pthread_mutex_unlock(&p->mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    ENTER(cuMemPoolGetAttribute);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 1 || attribute > 8)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&p->mutex);
    const uint64_t values[] = {p->threshold, p->reserved, p->reserved_high, p->used, p->used_high};
    if (attribute <= 3)
        *(int *)value = (int)p->reuse[attribute - 1];
    else
        *(uint64_t *)value = values[attribute - 4];
    pthread_mutex_unlock(&p->mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    ENTER(cuMemPoolSetAccess);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < count; i++) {
        if (!map || map[i].location.type != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (map[i].location.id < 0 || map[i].location.id >= cu.device_count)
            return CUDA_ERROR_INVALID_DEVICE;
        if (map[i].location.id == p->device && !p->host && map[i].flags != 3)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (!p->host && map[i].location.id != p->device && map[i].flags != 0 && !devices_peers(p->device, map[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        p->access[map[i].location.id] = map[i].flags;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    ENTER(cuMemPoolGetAccess);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!flags || !location || location->type < LOCATION_DEVICE || location->type > LOCATION_NUMA_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != LOCATION_DEVICE) {
        *flags = p->host || p->managed ? 3 : 0;
        return CUDA_SUCCESS;
    }
    if (location->id < 0 || location->id >= cu.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = p->access[location->id];
    return CUDA_SUCCESS;
}
