/* Stream-ordered memory. A pool takes memory from the card in large pieces and keeps it: what it costs is what it reserved.
 *
 * Freed memory can be used again at once (work is ordered by the axis of the card); at a synchronisation, pieces that are wholly free
 * go back to the card as far as the pool holds more than its release threshold. */
#define _GNU_SOURCE
#include "objects.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN 512ull
#define PIECE (32 * MIB)

/* A free stretch of a piece; a piece that is one free stretch can be given back. */
struct pool_free {
    struct pool_free *next; /* by address */
    uint64_t at, bytes;
    uint64_t piece, piece_bytes;
};

static struct { pthread_mutex_t mutex; CUmemoryPool built_in[MACHINE_CARDS], current[MACHINE_CARDS]; } pools =
    {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- inside a pool; its mutex held ---- */

static void join_neighbours(struct pool_free *f)
{
    while (f && f->next && f->piece == f->next->piece && f->at + f->bytes == f->next->at) {
        struct pool_free *gone = f->next;
        f->bytes += gone->bytes;
        f->next = gone->next;
        free(gone);
    }
}

static bool put_free(struct pool *p, uint64_t at, uint64_t bytes, uint64_t piece, uint64_t piece_bytes)
{
    struct pool_free *f = malloc(sizeof *f), *before = NULL;
    if (!f)
        return false;
    for (struct pool_free *i = p->free; i && i->at < at; i = i->next)
        before = i;
    *f = (struct pool_free){before ? before->next : p->free, at, bytes, piece, piece_bytes};
    if (before)
        before->next = f;
    else
        p->free = f;
    join_neighbours(f);
    join_neighbours(before);
    return true;
}

static bool take_free(struct pool *p, uint64_t bytes, struct block *b)
{
    for (struct pool_free **i = &p->free; *i; i = &(*i)->next) {
        struct pool_free *f = *i;
        if (f->bytes < bytes)
            continue;
        b->extent = f->at;
        b->owner = handle_of(K_POOL, p);
        b->physical = f->piece;      /* a pool's block remembers its piece instead */
        b->position = f->piece_bytes;
        f->at += bytes, f->bytes -= bytes;
        if (f->bytes == 0) {
            *i = f->next;
            free(f);
        }
        return true;
    }
    return false;
}

static void trim(struct pool *p, uint64_t keep)
{
    for (struct pool_free **i = &p->free; *i;) {
        struct pool_free *f = *i;
        if (f->bytes != f->piece_bytes || p->reserved - f->bytes < keep || p->reserved <= keep) {
            i = &f->next;
            continue;
        }
        *i = f->next;
        p->reserved -= f->bytes;
        extent_give(f->at, f->bytes);
        if (!p->host)
            memory_release(p->card, cu.slot, (struct charge){f->bytes, 0, 0, 0, 0});
        free(f);
    }
}

static bool grow(struct pool *p, uint64_t bytes)
{
    uint64_t piece = (bytes + BLOCK - 1) & ~(BLOCK - 1), extent;
    uint64_t sizes[2] = {piece < PIECE ? PIECE : piece, piece};
    for (int i = 0; i < 2; i++) {
        if (p->max_size && p->reserved + sizes[i] > p->max_size)
            continue;
        if (!p->host && !memory_charge(p->card, cu.slot, (struct charge){sizes[i], 0, 0, 0, 0}))
            continue; /* a smaller piece may still fit */
        if (!extent_take(sizes[i], &extent) || !put_free(p, extent, sizes[i], extent, sizes[i])) {
            if (!p->host)
                memory_release(p->card, cu.slot, (struct charge){sizes[i], 0, 0, 0, 0});
            return false;
        }
        p->reserved += sizes[i];
        p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
        return true;
    }
    return false;
}

/* ---- all pools ---- */

struct trimming { struct pool *except; bool settle; };

static void trim_one(void *object, void *arg)
{
    struct pool *p = object;
    const struct trimming *t = arg;
    if (p == t->except)
        return;
    pthread_mutex_lock(&p->mutex);
    trim(p, t->settle ? p->threshold : 0);
    pthread_mutex_unlock(&p->mutex);
}

static _Atomic bool any_pool;

void pools_settle(void)
{
    if (atomic_load_explicit(&any_pool, memory_order_relaxed))
        handle_each(K_POOL, trim_one, &(struct trimming){NULL, true});
}

static CUresult alloc_from(struct pool *p, uint64_t bytes, CUcontext context, CUdeviceptr *out)
{
    if (bytes > 1ull << 60)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t room = (bytes + GRAIN - 1) & ~(GRAIN - 1);
    struct block b = {.size = bytes, .kind = M_POOL, .card = p->card, .context = context};
    pthread_mutex_lock(&p->mutex);
    bool got = take_free(p, room, &b) || (grow(p, room) && take_free(p, room, &b));
    if (!got) { /* other pools of the process may hold what is missing */
        pthread_mutex_unlock(&p->mutex);
        handle_each(K_POOL, trim_one, &(struct trimming){p, false});
        pthread_mutex_lock(&p->mutex);
        trim(p, 0);
        got = grow(p, room) && take_free(p, room, &b);
    }
    struct block *kept = NULL;
    if (got) {
        b.data = extent_data(b.extent);
        b.address = extent_address(b.extent);
        kept = heap_enter(b);
        if (!kept)
            put_free(p, b.extent, room, b.physical, b.position);
    }
    if (kept) {
        p->used += room;
        p->used_high = p->used > p->used_high ? p->used : p->used_high;
        *out = b.address;
        struct machine_account *a = account_at(p->card, cu.slot);
        __atomic_fetch_add(&a->requested_bytes, bytes, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&p->mutex);
    return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pool_free_now(uint64_t address)
{
    struct block b;
    if (!heap_leave(address, M_POOL, &b))
        return CUDA_ERROR_INVALID_VALUE;
    struct pool *p = handle_get(K_POOL, b.owner);
    if (!p)
        return CUDA_SUCCESS;
    uint64_t room = (b.size + GRAIN - 1) & ~(GRAIN - 1);
    pthread_mutex_lock(&p->mutex);
    p->used -= room < p->used ? room : p->used;
    put_free(p, b.extent, room, b.physical, b.position);
    pthread_mutex_unlock(&p->mutex);
    __atomic_fetch_sub(&account_at(p->card, cu.slot)->requested_bytes, b.size, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static struct pool *pool_new(CUdevice device)
{
    struct pool *p = handle_new(K_POOL);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->mutex, NULL);
    p->device = device;
    p->card = cu.devices[device].card;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    p->access[device] = 3;
    atomic_store(&any_pool, true);
    return p;
}

static CUmemoryPool built_in_pool(CUdevice device)
{
    pthread_mutex_lock(&pools.mutex);
    if (!handle_get(K_POOL, pools.built_in[device])) {
        struct pool *p = pool_new(device);
        if (p) {
            p->built_in = true;
            pools.built_in[device] = handle_of(K_POOL, p);
            pools.current[device] = pools.built_in[device];
        }
    }
    CUmemoryPool pool = pools.built_in[device];
    pthread_mutex_unlock(&pools.mutex);
    return pool;
}

static CUmemoryPool current_pool(CUdevice device)
{
    CUmemoryPool built_in = built_in_pool(device);
    return handle_get(K_POOL, pools.current[device]) ? pools.current[device] : built_in;
}

/* ---- the calls ---- */

static CUresult alloc_async(struct context *context, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct stream *s = stream_of(stream, context);
    struct pool *p = handle_get(K_POOL, pool);
    if (!s || !p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || bytes == 0 || p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&s->capture)) {
        struct node what = {.type = N_ALLOC, .alloc = {.bytesize = bytes, .poolProps = {.location = {1, p->device}}}};
        CUresult rc = graph_memory_reserve(&what.alloc, p->card);
        if (rc == CUDA_SUCCESS)
            rc = capture_node(s, &what);
        if (rc == CUDA_SUCCESS)
            *out = what.alloc.dptr;
        return rc;
    }
    return alloc_from(p, bytes, context_current_handle(), out);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    ENTER_CONTEXT(cuMemAllocAsync, context);
    if (!card_at(context->card)->pool_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct stream *s = stream_of(stream, context);
    struct context *of = s ? context_of(s->context) : NULL;
    return of ? alloc_async(of, out, bytes, current_pool(of->device), stream) : CUDA_ERROR_INVALID_HANDLE;
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
    if (b.kind == M_POOL)
        return b.owner ? pool_free_now(address) : CUDA_SUCCESS; /* a graph's memory is free when its work is done */
    return b.kind == M_DEVICE ? heap_free(address, M_DEVICE) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    ENTER(cuMemPoolCreate);
    if (!out || !props || props->allocType != 1)
        return CUDA_ERROR_INVALID_VALUE;
    bool host = props->location.type == 2 || props->location.type == 3 || props->location.type == 4;
    if (!host && props->location.type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!host && (props->location.id < 0 || props->location.id >= cu.device_count))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!host && !card_at(cu.devices[props->location.id].card)->pool_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct pool *p = pool_new(host ? 0 : props->location.id);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->props = *props;
    p->host = host;
    p->max_size = props->maxSize;
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
    trim(p, 0);
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
    trim(p, keep);
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
        if (map[i].location.id == p->device && map[i].flags != 3)
            return CUDA_ERROR_NOT_SUPPORTED;
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
    if (!flags || !location || location->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->id < 0 || location->id >= cu.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = p->access[location->id];
    return CUDA_SUCCESS;
}

#define DEVICE(function) \
    ENTER(function); \
    if (device < 0 || device >= cu.device_count) \
        return CUDA_ERROR_INVALID_DEVICE;

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    DEVICE(cuDeviceGetDefaultMemPool);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!card_at(cu.devices[device].card)->pool_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    *out = built_in_pool(device);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    DEVICE(cuDeviceGetMemPool);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = current_pool(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    DEVICE(cuDeviceSetMemPool);
    struct pool *p = handle_get(K_POOL, pool);
    if (!p || p->device != device || p->host)
        return CUDA_ERROR_INVALID_VALUE;
    built_in_pool(device);
    pthread_mutex_lock(&pools.mutex);
    pools.current[device] = pool;
    pthread_mutex_unlock(&pools.mutex);
    return CUDA_SUCCESS;
}

/* The forms of 13.0: by location. */
EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    ENTER(cuMemGetDefaultMemPool);
    if (!out || !location || location->type != 1 || type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetDefaultMemPool(out, location->id);
}

EXPORT CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    ENTER(cuMemGetMemPool);
    if (!out || !location || location->type != 1 || type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetMemPool(out, location->id);
}

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    ENTER(cuMemSetMemPool);
    if (!location || location->type != 1 || type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceSetMemPool(location->id, pool);
}

/* Pools are not shared between processes here. */
#define NOT_SHARED(name, ...) \
    EXPORT CUresult name(__VA_ARGS__) \
    { \
        ENTER(name); \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
NOT_SHARED(cuMemPoolExportToShareableHandle, void)
NOT_SHARED(cuMemPoolImportFromShareableHandle, void)
NOT_SHARED(cuMemPoolExportPointer, void)
NOT_SHARED(cuMemPoolImportPointer, void)
