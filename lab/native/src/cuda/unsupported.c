/* Calls for which this machine has no part: memory and semaphores of graphics interfaces, texture references,
 * checkpoints, core dumps of one context, memory operations in streams, addresses of 32 bits.
 * Each answers as a driver does on a system without it. */
#include "cuda.h"

#include <stdio.h>

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

/* The program goes on to an error of its own that names no cause, such as CUBLAS_STATUS_NOT_INITIALIZED. */
static void tell_of_tables(void)
{
    static int told;
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        fputs("libcuda (emulated by Pumice): private tables of NVIDIA's driver are asked for, as by NVIDIA's own CUDA runtime (cuBLAS, "
              "cuDNN and NCCL have it inside), and here are none, so its calls fail; a real card runs it: "
              "docs/reference/emulated-machine.md, \"Programs on it\"\n",
              stderr);
}

/* The private tables of the runtime and the tools: none (docs/adr/0091). */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    tell_of_tables();
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
