#include "services/pools.h"

#include "core/log.h"
#include "core/waits.h"
#include "services/guest.h"
#include "services/contexts.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { POOLS = 512 };
#define POOL_GRAIN (2ull << 20)
#define SETTLE_INTERVAL_NS 10000000ull

struct pool {
    CUmemPool handle; /* NULL: the graph memory of the device */
    bool graph;
    int16_t device;   /* region index; -1 = host memory: not charged */
    uint64_t charged;
    uint64_t settled_ns;
};

/*
 * One lock for all pools of the process, held while the driver allocates from one: two threads would otherwise both count on the
 * same free part of a pool's reserve.
 */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS];
static int pool_count;
static uint32_t graph_generation = 1; /* odd: never 0 */

void pools_after_fork(void)
{
    pools_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(pools, 0, sizeof pools);
    pool_count = 0;
}

static uint64_t coarse_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static struct pool *add_pool(CUmemPool handle, bool graph, int device)
{
    if (pool_count == POOLS) {
        log_error("more than %d memory pools: the others are not charged", POOLS);
        return NULL;
    }
    struct pool *pool = &pools[pool_count++];
    *pool = (struct pool){.handle = handle, .graph = graph, .device = (int16_t)device};
    return pool;
}

static struct pool *find_pool(CUmemPool handle)
{
    for (int i = 0; i < pool_count; i++)
        if (!pools[i].graph && pools[i].handle == handle)
            return &pools[i];
    return NULL;
}

static struct pool *graph_pool(int device)
{
    for (int i = 0; i < pool_count; i++)
        if (pools[i].graph && pools[i].device == device)
            return &pools[i];
    return add_pool(NULL, true, device);
}

/* A pool that was not made through us is a default pool; anything else is taken to be of the current device. */
static struct pool *known_pool(const struct real *real, CUmemPool handle, int current)
{
    struct pool *pool = find_pool(handle);
    if (pool != NULL)
        return pool;
    for (int ordinal = 0; ordinal < guest.device_count; ordinal++) {
        CUmemPool of_device;
        if (real->cuDeviceGetDefaultMemPool != NULL &&
            INSIDE(real->cuDeviceGetDefaultMemPool(&of_device, ordinal)) == CUDA_SUCCESS && of_device == handle)
            return add_pool(handle, false, guest.index_of[ordinal]);
    }
    return add_pool(handle, false, current);
}

static uint64_t attribute(const struct real *real, const struct pool *pool, int pool_attribute)
{
    uint64_t value = 0;
    CUresult rc = CUDA_ERROR_NOT_FOUND;
    if (pool->graph && real->cuDeviceGetGraphMemAttribute != NULL)
        rc = INSIDE(real->cuDeviceGetGraphMemAttribute(guest.ordinal_of[pool->device], GRAPH_RESERVED_CURRENT, &value));
    else if (!pool->graph && real->cuMemPoolGetAttribute != NULL)
        rc = INSIDE(real->cuMemPoolGetAttribute(pool->handle, pool_attribute, &value));
    return rc == CUDA_SUCCESS ? value : pool->charged;
}

/* Books what the pool has reserved beyond its charge; false when that is above the limit. */
static bool charge_growth(const struct real *real, struct pool *pool)
{
    uint64_t reserved = attribute(real, pool, POOL_RESERVED_CURRENT);
    if (reserved < pool->charged) {
        backend->release(&guest.map, pool->device, MEMORY_DATA, pool->charged - reserved);
        pool->charged = reserved;
    }
    if (reserved > pool->charged) {
        if (backend->reserve(&guest.map, pool->device, MEMORY_DATA, reserved - pool->charged) == REFUSED)
            return false;
        pool->charged = reserved;
    }
    pool->settled_ns = coarse_ns();
    return true;
}

static void trim(const struct real *real, struct pool *pool)
{
    if (pool->graph) {
        pools_graph_trimmed();
        INSIDE(real->cuDeviceGraphMemTrim(guest.ordinal_of[pool->device]));
    } else
        INSIDE(real->cuMemPoolTrimTo(pool->handle, 0));
}

static bool settle_locked(const struct real *real, int device, bool with_trim)
{
    bool freed = false;
    for (int i = 0; i < pool_count; i++) {
        struct pool *pool = &pools[i];
        if (pool->device != device)
            continue;
        uint64_t before = pool->charged;
        if (with_trim)
            trim(real, pool);
        charge_growth(real, pool);
        freed |= pool->charged < before;
    }
    return freed;
}

bool pools_settle(int device, bool with_trim)
{
    if (__atomic_load_n(&pool_count, __ATOMIC_RELAXED) == 0)
        return false;
    mutex_take(&pools_lock);
    bool freed = settle_locked(real_cuda(), device, with_trim);
    pthread_mutex_unlock(&pools_lock);
    return freed;
}

/* Lazily, because a stream-ordered free takes effect later than its call. */
static void settle_now_and_then(const struct real *real, int device)
{
    uint64_t now = coarse_ns();
    for (int i = 0; i < pool_count; i++)
        if (pools[i].device == device && now - pools[i].settled_ns > SETTLE_INTERVAL_NS)
            charge_growth(real, &pools[i]);
}

/* The pool will grow by about this much for n more bytes. */
static uint64_t expected_growth(const struct real *real, const struct pool *pool, uint64_t bytes)
{
    uint64_t used = attribute(real, pool, POOL_USED_CURRENT), need;
    if (__builtin_add_overflow(used, bytes, &need) || need > UINT64_MAX - POOL_GRAIN)
        return UINT64_MAX;
    return need <= pool->charged ? 0 : (need - pool->charged + POOL_GRAIN - 1) / POOL_GRAIN * POOL_GRAIN;
}

static bool reserve_growth(const struct real *real, struct pool *pool, uint64_t bytes)
{
    uint64_t growth = expected_growth(real, pool, bytes);
    if (growth == 0)
        return true;
    if (backend->reserve(&guest.map, pool->device, MEMORY_DATA, growth) == REFUSED) {
        settle_locked(real, pool->device, true);
        growth = expected_growth(real, pool, bytes);
        if (backend->reserve(&guest.map, pool->device, MEMORY_DATA, growth) == REFUSED) {
            log_info("out of memory: device %d, %llu bytes asked of a pool, %llu of %llu in use", pool->device,
                     (unsigned long long)bytes, (unsigned long long)memory_used(&guest.map, pool->device),
                     (unsigned long long)memory_limit(&guest.map, pool->device));
            return false;
        }
    }
    pool->charged += growth;
    return true;
}

static CUresult allocate_locked(const struct real *real, struct pool *pool, pool_allocation call, CUdeviceptr *pointer,
                                size_t bytes, CUmemPool handle, CUstream stream)
{
    settle_now_and_then(real, pool->device);
    if (!reserve_growth(real, pool, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(call(real, pointer, bytes, handle, stream));
    if (charge_growth(real, pool))
        return rc;
    /* It grew by more than its blocks need, and by more than there is. */
    if (rc == CUDA_SUCCESS)
        INSIDE(real->cuMemFreeAsync(*pointer, stream));
    settle_locked(real, pool->device, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool capturing(const struct real *real, CUstream stream, bool per_thread)
{
    int status = 0;
    if (per_thread && real->cuStreamIsCapturing_ptsz != NULL)
        return INSIDE(real->cuStreamIsCapturing_ptsz(stream, &status)) == CUDA_SUCCESS && status != 0;
    return real->cuStreamIsCapturing != NULL && INSIDE(real->cuStreamIsCapturing(stream, &status)) == CUDA_SUCCESS && status != 0;
}

CUresult pools_allocate(const struct real *real, pool_allocation call, CUdeviceptr *pointer, size_t bytes, CUmemPool handle,
                        CUstream stream, bool per_thread)
{
    CUdevice ordinal = -1;
    if (pointer == NULL || bytes == 0 || !guest_serves() || real->cuCtxGetDevice == NULL ||
        INSIDE(real->cuCtxGetDevice(&ordinal)) != CUDA_SUCCESS || capturing(real, stream, per_thread))
        return INSIDE(call(real, pointer, bytes, handle, stream));
    int current = guest_device(ordinal);
    CUmemPool from = handle;
    if (from == NULL && (real->cuDeviceGetMemPool == NULL || INSIDE(real->cuDeviceGetMemPool(&from, ordinal)) != CUDA_SUCCESS))
        return INSIDE(call(real, pointer, bytes, handle, stream));
    int saved = errno;
    if (current >= 0)
        contexts_notice(current);
    mutex_take(&pools_lock);
    struct pool *pool = known_pool(real, from, current);
    CUresult rc = pool == NULL || pool->device < 0
                      ? INSIDE(call(real, pointer, bytes, handle, stream))
                      : allocate_locked(real, pool, call, pointer, bytes, handle, stream);
    pthread_mutex_unlock(&pools_lock);
    errno = saved;
    return rc;
}

uint32_t pools_graph_generation(void)
{
    return __atomic_load_n(&graph_generation, __ATOMIC_RELAXED);
}

static uint64_t graph_growth(const struct pool *pool, uint64_t bytes, bool first)
{
    return first ? bytes : bytes > pool->charged ? bytes - pool->charged : 0;
}

bool pools_graph_begins(int device, uint64_t bytes, bool first)
{
    const struct real *real = real_cuda();
    mutex_take(&pools_lock);
    struct pool *pool = graph_pool(device);
    bool fits = true;
    if (pool != NULL) {
        charge_growth(real, pool);
        uint64_t growth = graph_growth(pool, bytes, first);
        fits = growth == 0 || backend->reserve(&guest.map, device, MEMORY_DATA, growth) == GRANTED;
        if (!fits && settle_locked(real, device, true)) {
            growth = graph_growth(pool, bytes, true);
            fits = backend->reserve(&guest.map, device, MEMORY_DATA, growth) == GRANTED;
        }
        if (fits)
            pool->charged += growth;
        else
            log_info("out of memory: device %d, a graph needs %llu bytes of %llu", device, (unsigned long long)bytes,
                     (unsigned long long)memory_limit(&guest.map, device));
    }
    pthread_mutex_unlock(&pools_lock);
    return fits;
}

void pools_graph_began(int device)
{
    mutex_take(&pools_lock);
    struct pool *pool = graph_pool(device);
    if (pool != NULL)
        charge_growth(real_cuda(), pool);
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

CUresult pools_destroy(const struct real *real, CUmemPool handle)
{
    mutex_take(&pools_lock);
    CUresult rc = INSIDE(real->cuMemPoolDestroy(handle));
    struct pool *pool = rc == CUDA_SUCCESS ? find_pool(handle) : NULL;
    if (pool != NULL) {
        if (pool->device >= 0)
            backend->release(&guest.map, pool->device, MEMORY_DATA, pool->charged);
        *pool = pools[--pool_count];
    }
    pthread_mutex_unlock(&pools_lock);
    return rc;
}

void pools_changed(const struct real *real, CUmemPool handle)
{
    mutex_take(&pools_lock);
    struct pool *pool = find_pool(handle);
    if (pool != NULL && pool->device >= 0)
        charge_growth(real, pool);
    pthread_mutex_unlock(&pools_lock);
}

bool pools_pause(void)
{
    return pthread_mutex_trylock(&pools_lock) == 0;
}

void pools_go_on(void)
{
    pthread_mutex_unlock(&pools_lock);
}
