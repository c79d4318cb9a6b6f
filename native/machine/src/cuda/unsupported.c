/* What this machine has no part of: memory and semaphores of graphics interfaces, texture references,
 * checkpoints, core dumps of one context, memory operations in streams, addresses of 32 bits. Each answers as a driver does on a system without it. */
#include "cuda.h"

#define SYMBOL(base, version, thread, name)
#define UNSERVED(base, version, thread, name) \
    EXPORT CUresult name(void) \
    { \
        ENTER(name); \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#include "symbols.def"
#undef SYMBOL
#undef UNSERVED

/* The private tables of the runtime and the tools: none. */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuProfilerStart(void)
{
    ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuProfilerStop(void)
{
    ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}
