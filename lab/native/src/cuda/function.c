/* Attributes of functions and how many blocks of them fit. */
#include "objects.h"

#include <string.h>

/* CUfunction_attribute: 0 threads, 1 static shared, 2 constant, 3 local, 4 registers, 5 PTX, 6 binary version, 7 cache, 8 dynamic
 * shared, 9 carve-out, 10.. cluster. */
static CUresult get(int *value, int attribute, const struct function *f, const struct machine_card *c)
{
    if (!value || attribute < 0 || attribute > 15)
        return CUDA_ERROR_INVALID_VALUE;
    int architecture = (int)(c->cc_major * 10 + c->cc_minor);
    switch (attribute) {
    case 0: *value = 1024; break;
    case 1: *value = f->attributes[1]; break;
    case 4: *value = f->regs; break;
    case 5: case 6: *value = architecture; break;
    case 8: *value = f->attributes[8] ? f->attributes[8] : (int)c->shared_per_block; break;
    case 9: *value = f->attributes[9] ? f->attributes[9] : -1; break;
    default: *value = attribute >= 13 ? 0 : f->attributes[attribute]; break;
    }
    return CUDA_SUCCESS;
}

static CUresult set(struct function *f, int attribute, int value, const struct machine_card *c)
{
    if (attribute == 8) {
        if (value < 0 || (unsigned)value > c->shared_per_sm)
            return CUDA_ERROR_INVALID_VALUE;
    } else if (attribute == 9) {
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
    } else if (attribute < 10 || attribute > 12) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    f->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

#define FUNCTION(name, handle) \
    ENTER_CONTEXT(name, context); \
    struct function *f = handle_get(K_FUNCTION, handle); \
    if (!f) \
        return CUDA_ERROR_INVALID_HANDLE;

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    FUNCTION(cuFuncGetAttribute, function);
    return get(value, attribute, f, card_at(context->card));
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    FUNCTION(cuFuncSetAttribute, function);
    return set(f, attribute, value, card_at(context->card));
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    FUNCTION(cuFuncSetCacheConfig, function);
    return config >= 0 && config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction function, int config)
{
    FUNCTION(cuFuncSetSharedMemConfig, function);
    return config >= 0 && config <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuFuncGetModule(CUmodule *out, CUfunction function)
{
    FUNCTION(cuFuncGetModule, function);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = f->module;
    return CUDA_SUCCESS;
}

static CUresult name_of(const char **out, const void *function)
{
    const struct function *f = function ? handle_get(K_FUNCTION, function) : NULL;
    if (!out || !f)
        return out && function ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *out = f->name;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **out, CUfunction function)
{
    ENTER(cuFuncGetName);
    return name_of(out, function);
}

EXPORT CUresult cuKernelGetName(const char **out, CUkernel kernel)
{
    ENTER(cuKernelGetName);
    return name_of(out, kernel);
}

EXPORT CUresult cuFuncIsLoaded(int *state, CUfunction function)
{
    FUNCTION(cuFuncIsLoaded, function);
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction function)
{
    FUNCTION(cuFuncLoad, function);
    return CUDA_SUCCESS;
}

static CUresult parameter(const struct function *f, size_t index, size_t *offset, size_t *size)
{
    if (!offset || index >= f->parameter_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = f->parameters[index].offset;
    if (size)
        *size = f->parameters[index].size;
    return CUDA_SUCCESS;
}

static CUresult parameter_count(const struct function *f, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = f->parameter_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    FUNCTION(cuFuncGetParamInfo, function);
    return parameter(f, index, offset, size);
}

EXPORT CUresult cuFuncGetParamCount(CUfunction function, size_t *count)
{
    FUNCTION(cuFuncGetParamCount, function);
    return parameter_count(f, count);
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    ENTER_CONTEXT(cuKernelGetParamInfo, context);
    const struct function *f = handle_get(K_FUNCTION, kernel);
    return f ? parameter(f, index, offset, size) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count)
{
    ENTER(cuKernelGetParamCount);
    const struct function *f = handle_get(K_FUNCTION, kernel);
    return f ? parameter_count(f, count) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device)
{
    ENTER(cuKernelGetAttribute);
    struct function *f = handle_get(K_FUNCTION, kernel);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    if (device < 0 || device >= cu.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    return get(value, attribute, f, card_at(cu.devices[device].card));
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device)
{
    ENTER(cuKernelSetAttribute);
    struct function *f = handle_get(K_FUNCTION, kernel);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    if (device < 0 || device >= cu.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    return set(f, attribute, value, card_at(cu.devices[device].card));
}

EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
    ENTER(cuKernelSetCacheConfig);
    (void)device;
    if (!handle_get(K_FUNCTION, kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    return config >= 0 && config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- occupancy: threads, blocks, registers and shared memory of an SM ---- */

static int blocks_per_sm(const struct function *f, const struct machine_card *c, int block, size_t shared)
{
    uint64_t by_threads = c->threads_per_sm / (unsigned)block;
    uint64_t regs = (uint64_t)f->regs * (((unsigned)block + 31) / 32 * 32);
    uint64_t by_regs = regs ? c->regs_per_sm / regs : 32;
    uint64_t bytes = shared + (unsigned)f->attributes[1] + 1024;
    uint64_t by_shared = c->shared_per_sm / bytes;
    uint64_t least = by_threads < by_regs ? by_threads : by_regs;
    least = least < by_shared ? least : by_shared;
    return (int)(least < 32 ? least : 32);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block, size_t shared,
                                                                     unsigned int flags)
{
    FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, function);
    if (!blocks || block <= 0 || block > 1024 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_per_sm(f, card_at(context->card), block, shared);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block, size_t shared)
{
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, shared, 0);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function, size_t (*shared_of)(int),
                                                          size_t shared, int limit, unsigned int flags)
{
    FUNCTION(cuOccupancyMaxPotentialBlockSizeWithFlags, function);
    if (!grid || !block || limit < 0 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    const struct machine_card *c = card_at(context->card);
    int best = 0, best_threads = -1, most = limit && limit < 1024 ? limit : 1024;
    for (int size = most; size >= 32; size -= 32) {
        int threads = size * blocks_per_sm(f, c, size, shared_of ? shared_of(size) : shared);
        if (threads > best_threads)
            best = size, best_threads = threads;
    }
    *block = best;
    *grid = blocks_per_sm(f, c, best, shared_of ? shared_of(best) : shared) * (int)cu.devices[context->device].sm_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, size_t (*shared_of)(int), size_t shared,
                                                 int limit)
{
    ENTER(cuOccupancyMaxPotentialBlockSize);
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit, 0);
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block)
{
    FUNCTION(cuOccupancyAvailableDynamicSMemPerBlock, function);
    if (!bytes || blocks <= 0 || block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct machine_card *c = card_at(context->card);
    size_t held = (unsigned)f->attributes[1] + 1024u, each = c->shared_per_sm / (unsigned)blocks;
    size_t most = (size_t)f->attributes[8] > c->shared_per_block ? (size_t)f->attributes[8] : c->shared_per_block; /* what a launch may ask */
    *bytes = each <= held ? 0 : each - held < most ? each - held : most;
    return CUDA_SUCCESS;
}

/* ---- clusters of blocks ---- */

struct attribute { int id, reserved; union { unsigned cluster[3]; char bytes[64]; } value; };
enum { CLUSTER_DIMENSION = 4, PORTABLE_CLUSTER = 8, NON_PORTABLE_ALLOWED = 14 };

static unsigned cluster_of(const CUlaunchConfig *config)
{
    const struct attribute *attributes = config->attrs;
    for (unsigned i = 0; attributes && i < config->numAttrs; i++)
        if (attributes[i].id == CLUSTER_DIMENSION)
            return attributes[i].value.cluster[0] * attributes[i].value.cluster[1] * attributes[i].value.cluster[2];
    return 1;
}

EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config)
{
    FUNCTION(cuOccupancyMaxPotentialClusterSize, function);
    if (card_at(context->card)->cc_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!size || !config)
        return CUDA_ERROR_INVALID_VALUE;
    *size = f->attributes[NON_PORTABLE_ALLOWED] ? 2 * PORTABLE_CLUSTER : PORTABLE_CLUSTER;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config)
{
    FUNCTION(cuOccupancyMaxActiveClusters, function);
    const struct machine_card *c = card_at(context->card);
    if (c->cc_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t block = config ? (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ : 0;
    if (!clusters || block == 0 || block > 1024 || cluster_of(config) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned blocks = (unsigned)blocks_per_sm(f, c, (int)block, config->sharedMemBytes) * cu.devices[context->device].sm_count;
    *clusters = (int)(blocks / cluster_of(config));
    return CUDA_SUCCESS;
}
