/* Green contexts. Each is a context of its own here; which processors it may use changes nothing. */
#define _GNU_SOURCE
#include "cuda.h"
#include "objects.h"

EXPORT CUresult cuDevResourceGenerateDesc(void **out, void *resources, unsigned int count)
{
    ENTER(cuDevResourceGenerateDesc);
    static char some;
    if (!out || !resources || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = &some;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *out, void *resources, CUdevice device, unsigned int flags)
{
    ENTER_DEVICE(cuGreenCtxCreate, device);
    if (!out || !resources || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext context;
    CUresult rc = context_make(device, 0, 12040, false, &context);
    if (rc == CUDA_SUCCESS) {
        context_of(context)->green = true;
        *out = (CUgreenCtx)(void *)context;
    }
    return rc;
}

static bool is_green(CUgreenCtx green)
{
    const struct context *c = handle_get(K_CONTEXT, (CUcontext)(void *)green);
    return c && c->green;
}

CUresult cuCtxDestroy_v2(CUcontext handle);
EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    ENTER(cuGreenCtxDestroy);
    return is_green(green) ? cuCtxDestroy_v2((CUcontext)(void *)green) : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    ENTER(cuCtxFromGreenCtx);
    if (!out || !is_green(green))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)(void *)green;
    return CUDA_SUCCESS;
}
