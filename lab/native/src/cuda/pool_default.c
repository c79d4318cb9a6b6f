/* The pool that every place has from the beginning, and the one that a program put in its stead: by device, for the host, and for
 * managed memory that is to be nowhere in particular. */
#include "pool.h"

enum { HOST = MACHINE_CARDS, ANYWHERE, PLACES };
static struct { pthread_mutex_t mutex; CUmemoryPool built_in[2][PLACES], current[2][PLACES]; } pools = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int place_of(CUmemLocation where, int type)
{
    if (type != ALLOCATION_PINNED && type != ALLOCATION_MANAGED)
        return -1;
    switch (where.type) {
    case LOCATION_NONE: return type == ALLOCATION_MANAGED ? ANYWHERE : -1;
    case LOCATION_DEVICE: return where.id >= 0 && where.id < cu.device_count ? where.id : -1;
    case LOCATION_HOST: return HOST;
    case LOCATION_NUMA: return where.id >= 0 ? HOST : -1; /* the machine has one */
    default: return -1;
    }
}

static bool capable(int place)
{
    return card_at(cu.devices[place < cu.device_count ? place : 0].card)->pool_capable;
}

CUmemoryPool pool_built_in(CUmemLocation where, int type)
{
    int place = place_of(where, type);
    if (place < 0 || !capable(place))
        return NULL;
    pthread_mutex_lock(&pools.mutex);
    CUmemoryPool *built_in = &pools.built_in[type - 1][place];
    if (!handle_get(K_POOL, *built_in)) {
        struct pool *p = pool_new(&(CUmemPoolProps){.allocType = type, .location = where});
        if (p) {
            p->built_in = true;
            *built_in = pools.current[type - 1][place] = handle_of(K_POOL, p);
        }
    }
    CUmemoryPool pool = *built_in;
    pthread_mutex_unlock(&pools.mutex);
    return pool;
}

CUmemoryPool pool_current(CUmemLocation where, int type)
{
    CUmemoryPool built_in = pool_built_in(where, type);
    CUmemoryPool current = built_in ? pools.current[type - 1][place_of(where, type)] : NULL;
    return handle_get(K_POOL, current) ? current : built_in;
}

bool pool_set_current(CUmemLocation where, int type, CUmemoryPool pool)
{
    const struct pool *p = handle_get(K_POOL, pool);
    int place = place_of(where, type);
    if (!p || !pool_built_in(where, type) || p->props.allocType != type || place_of(p->props.location, type) != place)
        return false;
    pthread_mutex_lock(&pools.mutex);
    pools.current[type - 1][place] = pool;
    pthread_mutex_unlock(&pools.mutex);
    return true;
}

CUresult pool_props_right(const CUmemPoolProps *props)
{
    int place = place_of(props->location, props->allocType);
    if (place < 0 && props->location.type == LOCATION_DEVICE && (props->allocType == ALLOCATION_PINNED || props->allocType == ALLOCATION_MANAGED))
        return CUDA_ERROR_INVALID_DEVICE;
    if (place < 0 && props->location.type != LOCATION_NUMA_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType == ALLOCATION_MANAGED && props->handleTypes)
        return CUDA_ERROR_NOT_SUPPORTED; /* managed memory has no handles */
    return capable(place < 0 ? HOST : place) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    ENTER_DEVICE(cuDeviceGetDefaultMemPool, device);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!capable(device))
        return CUDA_ERROR_NOT_SUPPORTED;
    *out = pool_built_in((CUmemLocation){LOCATION_DEVICE, device}, ALLOCATION_PINNED);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    ENTER_DEVICE(cuDeviceGetMemPool, device);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = pool_current((CUmemLocation){LOCATION_DEVICE, device}, ALLOCATION_PINNED);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    ENTER_DEVICE(cuDeviceSetMemPool, device);
    return pool_set_current((CUmemLocation){LOCATION_DEVICE, device}, ALLOCATION_PINNED, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The forms of 13.0: by place and type. */
#define BY_LOCATION(name, which) \
    EXPORT CUresult name(CUmemoryPool *out, CUmemLocation *location, int type) \
    { \
        ENTER(name); \
        CUmemoryPool pool = out && location ? which(*location, type) : NULL; \
        if (!pool) \
            return CUDA_ERROR_INVALID_VALUE; \
        *out = pool; \
        return CUDA_SUCCESS; \
    }
BY_LOCATION(cuMemGetDefaultMemPool, pool_built_in)
BY_LOCATION(cuMemGetMemPool, pool_current)

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    ENTER(cuMemSetMemPool);
    return location && pool_set_current(*location, type, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
