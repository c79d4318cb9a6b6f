#include "services/pools.h"

#include "core/after_fork.h"
#include "book/free_ranges.h"
#include "core/numbers.h"
#include "core/quiet.h"
#include "core/waits.h"
#include "services/blocks.h"
#include "services/process_state.h"
#include "services/contexts.h"
#include "services/waiting.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define PIECE_BYTES (32ull << 20)
#define SETTLE_INTERVAL_NS 10000000ull
#define POOL_GRAIN 512ull /* what a pool rounds its blocks to */

struct pool {
    CUmemPool handle; /* NULL: the graph memory of the device */
    bool graph;
    int16_t device;   /* region index; -1 = host memory: not charged */
    uint64_t charged;
    uint64_t reserved; /* by the driver, as last seen */
    uint32_t launching; /* graphs that count on what is charged, and may not have taken it yet */
    uint64_t settled_ns;
    struct free_ranges free_ranges;
};

/*
 * One lock for all pools of the process, held while the driver allocates from one: two threads would otherwise both count on the
 * same free part of a pool's reserve.
 */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool **pools;
static int pool_count, pool_places;
FORGET_IN_CHILD(pools_lock);
FORGET_IN_CHILD(pools);
FORGET_IN_CHILD(pool_count);
FORGET_IN_CHILD(pool_places);
static uint64_t piece_bytes = PIECE_BYTES;
static uint32_t graph_generation = 1; /* odd: never 0 */

static bool more_places(void)
{
    int places = pool_places == 0 ? 64 : 2 * pool_places;
    struct pool **larger = realloc(pools, (size_t)places * sizeof *larger);
    if (larger == NULL)
        return false;
    pools = larger;
    pool_places = places;
    return true;
}

/* NULL: without memory for its description nothing is given from it. */
static struct pool *add_pool(CUmemPool handle, bool graph, int device)
{
    struct pool *pool = pool_count < pool_places || more_places() ? calloc(1, sizeof *pool) : NULL;
    if (pool == NULL)
        return NULL;
    *pool = (struct pool){.handle = handle, .graph = graph, .device = (int16_t)device};
    struct record named = {.key = (uint64_t)(uintptr_t)handle, .bytes = (uint64_t)(uintptr_t)pool, .kind = RECORD_POOL, .references = 1};
    if (!graph && !records_insert(&named)) {
        free(pool);
        return NULL;
    }
    pools[pool_count++] = pool;
    return pool;
}

static struct pool *find_pool(CUmemPool handle)
{
    struct record named;
    return records_find(RECORD_POOL, (uint64_t)(uintptr_t)handle, &named) ? (struct pool *)(uintptr_t)named.bytes : NULL;
}

static void nothing(const struct record *record)
{
    (void)record;
}

static void remove_pool(struct pool *pool)
{
    struct record named;
    records_remove(RECORD_POOL, (uint64_t)(uintptr_t)pool->handle, &named);
    records_drop_owner((uint64_t)(uintptr_t)pool, nothing);
    for (int i = 0; i < pool_count; i++)
        if (pools[i] == pool)
            pools[i] = pools[--pool_count];
    free(pool);
}

static struct pool *graph_pool(int device)
{
    for (int i = 0; i < pool_count; i++)
        if (pools[i]->graph && pools[i]->device == device)
            return pools[i];
    return add_pool(NULL, true, device);
}

/* A pool that was not made through us is a default pool; anything else is taken to be of the current device. */
static struct pool *known_pool(CUmemPool handle, int current)
{
    struct pool *pool = find_pool(handle);
    if (pool != NULL)
        return pool;
    for (int ordinal = 0; ordinal < process_state.device_count; ordinal++) {
        CUmemPool of_device;
        if (CUDA(cuDeviceGetDefaultMemPool(&of_device, ordinal)) == CUDA_SUCCESS && of_device == handle)
            return add_pool(handle, false, process_state.index_of[ordinal]);
    }
    return add_pool(handle, false, current);
}

static uint64_t reserved_by(const struct pool *pool)
{
    uint64_t value = 0;
    CUresult rc = pool->graph ? CUDA(cuDeviceGetGraphMemAttribute(process_state.ordinal_of[pool->device], GRAPH_RESERVED_CURRENT, &value))
                              : CUDA(cuMemPoolGetAttribute(pool->handle, POOL_RESERVED_CURRENT, &value));
    return rc == CUDA_SUCCESS ? value : pool->charged;
}

/* Books what the pool has reserved beyond its charge; false when that is above the limit. */
static bool charge_growth(struct pool *pool)
{
    uint64_t reserved = reserved_by(pool);
    if (reserved < pool->charged && pool->launching == 0) {
        backend->release(&process_state.map, pool->device, MEMORY_DATA, pool->charged - reserved);
        pool->charged = reserved;
    }
    if (reserved < pool->reserved) /* it gave something back, and nobody says what */
        free_ranges_forget(&pool->free_ranges);
    pool->reserved = reserved;
    if (reserved > pool->charged) {
        if (backend->reserve(&process_state.map, pool->device, MEMORY_DATA, reserved - pool->charged) == REFUSED)
            return false;
        pool->charged = reserved;
    }
    pool->settled_ns = clock_read(CLOCK_MONOTONIC_COARSE);
    return true;
}

/* What a graph that is about to run finds again from its last run is not taken from it. */
static void trim(struct pool *pool)
{
    if (!pool->graph) {
        CUDA(cuMemPoolTrimTo(pool->handle, 0));
    } else if (pool->launching == 0) {
        pools_graph_trimmed();
        CUDA(cuDeviceGraphMemTrim(process_state.ordinal_of[pool->device]));
    }
}

static bool commit_locked(int device, bool with_trim)
{
    bool freed = false;
    for (int i = 0; i < pool_count; i++) {
        struct pool *pool = pools[i];
        if (pool->device != device)
            continue;
        uint64_t before = pool->charged;
        if (with_trim)
            trim(pool);
        charge_growth(pool);
        freed |= pool->charged < before;
    }
    return freed;
}

bool pools_reconcile(int device, bool with_trim)
{
    if (shared_peek(&pool_count) == 0)
        return false;
    mutex_take(&pools_lock);
    bool freed = commit_locked(device, with_trim);
    pthread_mutex_unlock(&pools_lock);
    return freed;
}

/* Lazily, because a stream-ordered free takes effect later than its call. */
static void settle_now_and_then(int device)
{
    uint64_t now = clock_read(CLOCK_MONOTONIC_COARSE);
    for (int i = 0; i < pool_count; i++)
        if (pools[i]->device == device && now - pools[i]->settled_ns > SETTLE_INTERVAL_NS)
            charge_growth(pools[i]);
}

/*
 * What the pool may grow by for so many bytes: a piece of its own, for what it has free may lie in stretches that are too short. A pool
 * grows by whole pieces even where less would do; how large they are was seen when it last took more than it needed.
 */
static uint64_t expected_growth(uint64_t bytes)
{
    uint64_t whole = blocks_bytes(bytes), piece = shared_peek(&piece_bytes);
    return max_u64(whole, piece);
}

static void learn_piece(uint64_t grown, uint64_t bytes)
{
    if (grown > blocks_bytes(bytes) && grown > piece_bytes)
        shared_put(&piece_bytes, grown);
}

/* The block's place is free no more; what a new piece has behind it is. */
static void note(struct pool *pool, uint64_t before, CUdeviceptr pointer, uint64_t bytes)
{
    struct record record = {.key = pointer, .bytes = round_up(bytes, POOL_GRAIN), .owner = (uint64_t)(uintptr_t)pool, .kind = RECORD_POOLED, .references = 1};
    records_insert(&record);
    free_ranges_take(&pool->free_ranges, pointer, record.bytes);
    if (pool->reserved >= before + record.bytes && pool->reserved > before)
        free_ranges_add(&pool->free_ranges, pointer + record.bytes, pool->reserved - before - record.bytes);
}

/* A stretch that the pool has free already may do where the limit has no room for a piece more. */
static bool reserve_growth(struct pool *pool, uint64_t bytes)
{
    uint64_t growth = expected_growth(bytes);
    if (backend->reserve(&process_state.map, pool->device, MEMORY_DATA, growth) == REFUSED) {
        if (free_ranges_fit(&pool->free_ranges, round_up(bytes, POOL_GRAIN)))
            return true;
        commit_locked(pool->device, true);
        if (backend->reserve(&process_state.map, pool->device, MEMORY_DATA, growth) == REFUSED) {
            process_tell_refusal(pool->device, bytes);
            return false;
        }
    }
    pool->charged += growth;
    return true;
}

static CUresult allocate_locked(struct pool *pool, pool_allocation call, CUdeviceptr *pointer,
                                size_t bytes, CUmemPool handle, CUstream stream)
{
    settle_now_and_then(pool->device);
    charge_growth(pool); /* a synchronisation since the last call may have taken free stretches out of it */
    if (!reserve_growth(pool, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t before = pool->reserved;
    CUresult rc = call(pointer, bytes, handle, stream);
    if (charge_growth(pool)) {
        if (rc == CUDA_SUCCESS) {
            note(pool, before, *pointer, bytes);
            learn_piece(pool->reserved > before ? pool->reserved - before : 0, bytes);
        }
        return rc;
    }
    /* It grew by more than its blocks need, and by more than there is. */
    if (rc == CUDA_SUCCESS)
        CUDA(cuMemFreeAsync(*pointer, stream));
    commit_locked(pool->device, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pools_allocate(pool_allocation call, CUdeviceptr *pointer, size_t bytes, CUmemPool handle,
                        CUstream stream, bool per_thread)
{
    CUdevice ordinal = -1;
    if (pointer == NULL || bytes == 0 || !process_serves() || CUDA(cuCtxGetDevice(&ordinal)) != CUDA_SUCCESS || launch_capturing(stream, per_thread))
        return call(pointer, bytes, handle, stream);
    int current = process_device(ordinal);
    CUmemPool from = handle;
    if (from == NULL && CUDA(cuDeviceGetMemPool(&from, ordinal)) != CUDA_SUCCESS)
        return call(pointer, bytes, handle, stream);
    KEEP_ERRNO;
    if (current >= 0)
        contexts_notice(current);
    mutex_take(&pools_lock);
    struct pool *pool = known_pool(from, current);
    CUresult rc = pool == NULL        ? CUDA_ERROR_OUT_OF_MEMORY : pool->device < 0 ? call(pointer, bytes, handle, stream)
                                     : allocate_locked(pool, call, pointer, bytes, handle, stream);
    pthread_mutex_unlock(&pools_lock);
    return rc;
}

uint32_t pools_graph_generation(void)
{
    return shared_peek(&graph_generation);
}

static uint64_t graph_growth(const struct pool *pool, uint64_t bytes, bool first)
{
    return first ? bytes : bytes > pool->charged ? bytes - pool->charged : 0;
}

bool pools_graph_begins(int device, uint64_t bytes, bool first)
{
    mutex_take(&pools_lock);
    struct pool *pool = graph_pool(device);
    bool fits = pool != NULL;
    if (pool != NULL) {
        charge_growth(pool);
        underway_begin(device);
        uint64_t growth = graph_growth(pool, bytes, first);
        fits = growth == 0 || backend->reserve(&process_state.map, device, MEMORY_DATA, growth) == GRANTED;
        if (!fits && commit_locked(device, true)) {
            growth = graph_growth(pool, bytes, true);
            fits = backend->reserve(&process_state.map, device, MEMORY_DATA, growth) == GRANTED;
        }
        pool->launching++;
        if (fits)
            pool->charged += growth;
        else
            process_tell_refusal(device, bytes);
    }
    pthread_mutex_unlock(&pools_lock);
    return fits;
}

void pools_graph_began(int device)
{
    mutex_take(&pools_lock);
    struct pool *pool = graph_pool(device);
    if (pool != NULL && pool->launching > 0) {
        pool->launching--;
        charge_growth(pool);
        underway_end(device);
    }
    pthread_mutex_unlock(&pools_lock);
}

uint32_t pools_graph_trimmed(void)
{
    return __atomic_add_fetch(&graph_generation, 2, __ATOMIC_RELAXED);
}

void pools_made(CUmemPool handle, int device)
{
    mutex_take(&pools_lock);
    struct pool *stale = find_pool(handle);
    if (stale != NULL)
        stale->device = (int16_t)device;
    else
        add_pool(handle, false, device);
    pthread_mutex_unlock(&pools_lock);
}

CUresult pools_destroy(CUmemPool handle)
{
    mutex_take(&pools_lock);
    CUresult rc = CUDA(cuMemPoolDestroy(handle));
    struct pool *pool = rc == CUDA_SUCCESS ? find_pool(handle) : NULL;
    if (pool != NULL) {
        if (pool->device >= 0)
            backend->release(&process_state.map, pool->device, MEMORY_DATA, pool->charged);
        remove_pool(pool);
    }
    pthread_mutex_unlock(&pools_lock);
    return rc;
}

void pools_block_freed(CUdeviceptr pointer)
{
    struct record block;
    if (!records_remove(RECORD_POOLED, pointer, &block))
        return;
    mutex_take(&pools_lock);
    for (int i = 0; i < pool_count; i++) /* it may be gone by now */
        if ((uint64_t)(uintptr_t)pools[i] == block.owner)
            free_ranges_add(&pools[i]->free_ranges, block.key, block.bytes);
    pthread_mutex_unlock(&pools_lock);
}

void pools_changed(CUmemPool handle)
{
    mutex_take(&pools_lock);
    struct pool *pool = find_pool(handle);
    if (pool != NULL && pool->device >= 0)
        charge_growth(pool);
    pthread_mutex_unlock(&pools_lock);
}

bool pools_any(void)
{
    return shared_peek(&pool_count) > 0;
}

bool pools_pause(void)
{
    return pthread_mutex_trylock(&pools_lock) == 0;
}

void pools_go_on(void)
{
    pthread_mutex_unlock(&pools_lock);
}
