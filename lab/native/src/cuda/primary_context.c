/* The primary context of each device: made with the first that retains it, gone with the last that releases it. */
#define _GNU_SOURCE
#include "cuda.h"
#include "objects.h"

static struct { pthread_mutex_t mutex; CUcontext context; unsigned references, flags; } primary[MACHINE_CARDS] =
    {[0 ... MACHINE_CARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    ENTER_DEVICE(cuDevicePrimaryCtxRetain, device);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary[device].mutex);
    CUresult rc = CUDA_SUCCESS;
    if (!handle_get(K_CONTEXT, primary[device].context)) {
        primary[device].references = 0;
        rc = context_make(device, primary[device].flags, 3020, true, &primary[device].context);
    }
    if (rc == CUDA_SUCCESS) {
        primary[device].references++;
        *out = primary[device].context;
    }
    pthread_mutex_unlock(&primary[device].mutex);
    return rc;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER_DEVICE(cuDevicePrimaryCtxRelease_v2, device);
    pthread_mutex_lock(&primary[device].mutex);
    bool held = primary[device].references > 0;
    if (held && --primary[device].references == 0) {
        context_end(primary[device].context);
        primary[device].context = NULL;
    }
    pthread_mutex_unlock(&primary[device].mutex);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

/* Everything of the context goes; those who retained it still hold it, and the next retain makes a new one. */
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER_DEVICE(cuDevicePrimaryCtxReset_v2, device);
    pthread_mutex_lock(&primary[device].mutex);
    if (primary[device].context)
        context_end(primary[device].context);
    primary[device].context = NULL;
    primary[device].references = 0;
    pthread_mutex_unlock(&primary[device].mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    ENTER_DEVICE(cuDevicePrimaryCtxSetFlags_v2, device);
    if (flags > 0xff)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary[device].mutex);
    primary[device].flags = flags;
    struct context *c = handle_get(K_CONTEXT, primary[device].context);
    if (c)
        c->flags = flags;
    pthread_mutex_unlock(&primary[device].mutex);
    return CUDA_SUCCESS;
}

/* Before 11.0 an active context refused new flags. */
EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    ENTER_DEVICE(cuDevicePrimaryCtxSetFlags, device);
    if (handle_get(K_CONTEXT, primary[device].context))
        return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    ENTER_DEVICE(cuDevicePrimaryCtxGetState, device);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary[device].mutex);
    *flags = primary[device].flags;
    *active = handle_get(K_CONTEXT, primary[device].context) != NULL;
    pthread_mutex_unlock(&primary[device].mutex);
    return CUDA_SUCCESS;
}

struct context *primary_of(CUdevice device)
{
    return handle_get(K_CONTEXT, primary[device].context);
}
