/* Settings of a context that change nothing here but can be read back, and questions about it. */
#define _GNU_SOURCE
#include "cuda.h"

#define QUERY(name, type, expression) \
    EXPORT CUresult name(type *out) \
    { \
        ENTER_CONTEXT(name, context); \
        if (!out) \
            return CUDA_ERROR_INVALID_VALUE; \
        *out = (expression); \
        return CUDA_SUCCESS; \
    }
QUERY(cuCtxGetFlags, unsigned int, context->flags)
QUERY(cuCtxGetCacheConfig, int, context->cache_config)
QUERY(cuCtxGetSharedMemConfig, int, context->shared_config)

EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
    ENTER_CONTEXT(cuCtxSetFlags, context);
    context->flags = flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCacheConfig(int config)
{
    ENTER_CONTEXT(cuCtxSetCacheConfig, context);
    if (config < 0 || config > 3)
        return CUDA_ERROR_INVALID_VALUE;
    context->cache_config = config;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetSharedMemConfig(int config)
{
    ENTER_CONTEXT(cuCtxSetSharedMemConfig, context);
    if (config < 0 || config > 2)
        return CUDA_ERROR_INVALID_VALUE;
    context->shared_config = config;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit)
{
    ENTER_CONTEXT(cuCtxGetLimit, context);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit > 8)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

/* The stacks of all threads that fit on the card, the buffer of printf and the heap of malloc are device memory of the context. A
 * new context has them in its price. */
static uint64_t bytes_of_limits(const struct context *context)
{
    const struct machine_card *c = card_at(context->card);
    uint64_t threads = (uint64_t)c->sm_count * c->threads_per_sm;
    uint64_t stacks = context->limits[0] > context_default_limits[0] ? (context->limits[0] - context_default_limits[0]) * threads : 0;
    for (int i = 1; i <= 2; i++)
        stacks += context->limits[i] > context_default_limits[i] ? context->limits[i] - context_default_limits[i] : 0;
    return (stacks + BLOCK - 1) & ~(BLOCK - 1);
}

static bool resize(struct context *context, int limit, size_t value)
{
    size_t before = context->limits[limit];
    context->limits[limit] = value;
    uint64_t bytes = value > 1ull << 40 ? UINT64_MAX : bytes_of_limits(context), had = context->settings_bytes;
    if (bytes > had && (bytes == UINT64_MAX || !memory_charge(context->card, cu.slot, (struct charge){.bytes = bytes - had}))) {
        context->limits[limit] = before;
        return false;
    }
    if (bytes < had)
        memory_release(context->card, cu.slot, (struct charge){.bytes = had - bytes});
    context->settings_bytes = bytes;
    return true;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    ENTER_CONTEXT(cuCtxSetLimit, context);
    if (limit < 0 || limit > 8)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return resize(context, limit, value) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    ENTER(cuCtxGetApiVersion);
    struct context *c = handle ? handle_get(K_CONTEXT, handle) : context_current();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = c->api_version;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    ENTER(cuCtxGetId);
    struct context *c = handle ? handle_get(K_CONTEXT, handle) : context_chosen();
    if (!c)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = c->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER_CONTEXT(cuCtxGetStreamPriorityRange, context);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
    ENTER_CONTEXT(cuCtxResetPersistingL2Cache, context);
    return CUDA_SUCCESS;
}
