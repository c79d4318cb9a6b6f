/* Launches, and what there is to know and to set of a kernel. */
#include "runtime.h"

struct attributes { /* cudaFuncAttributes; that of CUDA 11 knows no clusters */
    size_t shared, constants, local;
    int threads, registers, ptx, binary, cached, dynamic, carveout;
#if RUNTIME > 11
    int cluster_set, cluster_width, cluster_height, cluster_depth, cluster_policy, cluster_any;
    int reserved[16];
#endif
};
struct config { /* cudaLaunchConfig_t */
    dim3 grid, block;
    size_t shared;
    CUstream stream;
    void *attributes;
    unsigned count;
};
_Static_assert(sizeof(struct attributes) == (RUNTIME > 11 ? 144 : 56) && sizeof(struct config) == 56, "cudaFuncAttributes, cudaLaunchConfig_t");

#define OWN(stream, per_thread) ((per_thread) && !(stream) ? CU_STREAM_PER_THREAD : (stream))

static int launch(CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared, CUstream stream)
{
    return THE(cuLaunchKernel)(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, arguments, NULL);
}

static int launch_cooperative(CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared, CUstream stream)
{
    return THE(cuLaunchCooperativeKernel)(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, arguments);
}

static int launch_with(const struct config *config, CUkernel kernel, void **arguments, CUstream stream)
{
    CUlaunchConfig asked = {
        config->grid.x, config->grid.y, config->grid.z, config->block.x, config->block.y, config->block.z, (unsigned)config->shared, stream,
        config->attributes, config->count,
    };
    return THE(cuLaunchKernelEx)(&asked, kernel, arguments, NULL);
}

#define LAUNCHES(suffix, own) \
    EXPORT int cudaLaunchKernel##suffix(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, CUstream stream) \
    { \
        CUkernel kernel; \
        int rc = kernel_of(function, &kernel); \
        return settle(rc ? rc : launch(kernel, grid, block, arguments, shared, OWN(stream, own))); \
    } \
    EXPORT int __cudaLaunchKernel##suffix(CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared, CUstream stream) \
    { \
        int rc = in_context(); \
        return settle(rc ? rc : launch(kernel, grid, block, arguments, shared, OWN(stream, own))); \
    } \
    EXPORT int cudaLaunchCooperativeKernel##suffix(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, \
                                                   CUstream stream) \
    { \
        CUkernel kernel; \
        int rc = kernel_of(function, &kernel); \
        return settle(rc ? rc : launch_cooperative(kernel, grid, block, arguments, shared, OWN(stream, own))); \
    } \
    EXPORT int cudaLaunchKernelExC##suffix(const struct config *config, const void *function, void **arguments) \
    { \
        CUkernel kernel; \
        int rc = config ? kernel_of(function, &kernel) : CUDA_ERROR_INVALID_VALUE; \
        return settle(rc ? rc : launch_with(config, kernel, arguments, OWN(config->stream, own))); \
    }
LAUNCHES(, false)
LAUNCHES(_ptsz, true)

/* ---- f<<<grid, block>>>(): what stands between the brackets, until the stub comes for it ---- */

enum { NESTED = 16 };
static _Thread_local struct { dim3 grid, block; size_t shared; CUstream stream; } pushed[NESTED];
static _Thread_local int depth;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream stream)
{
    if (depth == NESTED)
        return 1;
    pushed[depth].grid = grid;
    pushed[depth].block = block;
    pushed[depth].shared = shared;
    pushed[depth++].stream = stream;
    return 0;
}

EXPORT int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, CUstream *stream)
{
    if (depth == 0)
        return settle(cudaErrorMissingConfiguration);
    depth--;
    *grid = pushed[depth].grid;
    *block = pushed[depth].block;
    *shared = pushed[depth].shared;
    *stream = pushed[depth].stream;
    return 0;
}

/* ---- attributes ---- */

EXPORT int cudaFuncGetAttributes(struct attributes *out, const void *function)
{
    CUkernel kernel;
    int rc = out ? kernel_of(function, &kernel) : CUDA_ERROR_INVALID_VALUE, wide[4] = {0};
    if (rc)
        return settle(rc);
    *out = (struct attributes){0};
    int *const places[] = { /* by CU_FUNC_ATTRIBUTE_... */
        &out->threads, &wide[1], &wide[2], &wide[3], &out->registers, &out->ptx, &out->binary, &out->cached, &out->dynamic, &out->carveout,
#if RUNTIME > 11
        &out->cluster_set, &out->cluster_width, &out->cluster_height, &out->cluster_depth, &out->cluster_any, &out->cluster_policy,
#endif
    };
    for (int i = 0; i < (int)(sizeof places / sizeof *places) && rc == 0; i++) {
        rc = THE(cuFuncGetAttribute)(places[i], i, kernel);
        if (rc == CUDA_ERROR_INVALID_VALUE && i > 9) /* a driver that has no clusters */
            rc = 0;
    }
    out->shared = (size_t)wide[1];
    out->constants = (size_t)wide[2];
    out->local = (size_t)wide[3];
    return settle(rc);
}

#define OF_KERNEL(function, call) \
    do { \
        CUkernel kernel; \
        int rc_ = kernel_of(function, &kernel); \
        return settle(rc_ ? rc_ : call); \
    } while (0)

EXPORT int cudaFuncSetAttribute(const void *function, int attribute, int value)
{
    OF_KERNEL(function, THE(cuFuncSetAttribute)(kernel, attribute, value));
}

EXPORT int cudaKernelSetAttributeForDevice(const void *function, int attribute, int value, int device)
{
    OF_KERNEL(function, THE(cuKernelSetAttribute)(attribute, value, kernel, device));
}

EXPORT int cudaFuncSetCacheConfig(const void *function, int config)
{
    OF_KERNEL(function, THE(cuFuncSetCacheConfig)(kernel, config));
}

EXPORT int cudaFuncSetSharedMemConfig(const void *function, int config)
{
    (void)config; /* no card since Kepler has it */
    OF_KERNEL(function, 0);
}

EXPORT int cudaFuncGetName(const char **name, const void *function)
{
    OF_KERNEL(function, THE(cuFuncGetName)(name, kernel));
}

EXPORT int cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset, size_t *bytes)
{
    OF_KERNEL(function, THE(cuFuncGetParamInfo)(kernel, index, offset, bytes));
}

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared, unsigned flags)
{
    OF_KERNEL(function, THE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, kernel, threads, shared, flags));
}

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks, int threads)
{
    OF_KERNEL(function, THE(cuOccupancyAvailableDynamicSMemPerBlock)(bytes, kernel, blocks, threads));
}
