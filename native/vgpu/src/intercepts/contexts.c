/* Entries that make and end contexts; what they cost is in services/contexts.h. */
#include "services/contexts.h"
#include "services/guest.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    const struct real *real = real_cuda();
    int device = guest_serves() ? guest_device(ordinal) : -1;
    if (device < 0 || contexts_primary_known(device))
        return INSIDE(real->cuDevicePrimaryCtxRetain(context, ordinal));
    struct context_request request;
    if (!contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuDevicePrimaryCtxRetain(context, ordinal));
    if (rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (!contexts_primary_began(&request, *context)) {
        INSIDE(real->cuDevicePrimaryCtxRelease_v2(ordinal));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

static CUresult after_primary(CUresult rc, CUdevice ordinal, void (*book)(int))
{
    int device = rc == CUDA_SUCCESS && guest_serves() ? guest_device(ordinal) : -1;
    if (device >= 0)
        book(device);
    return rc;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_primary(INSIDE(real->cuDevicePrimaryCtxRelease(device)), device, contexts_primary_released);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_primary(INSIDE(real->cuDevicePrimaryCtxRelease_v2(device)), device, contexts_primary_released);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_primary(INSIDE(real->cuDevicePrimaryCtxReset(device)), device, contexts_primary_reset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_primary(INSIDE(real->cuDevicePrimaryCtxReset_v2(device)), device, contexts_primary_reset);
}

static CUresult after_create(const struct real *real, CUresult rc, const CUcontext *context, const struct context_request *request)
{
    if (request->device < 0)
        return rc;
    if (rc != CUDA_SUCCESS) {
        contexts_failed(request);
    } else if (!contexts_made(request, *context)) {
        INSIDE(real->cuCtxDestroy_v2(*context));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

#define CREATE(context, ordinal, call) \
    const struct real *real = real_cuda(); \
    struct context_request request; \
    if (!contexts_begin(&request, guest_serves() ? guest_device(ordinal) : -1)) \
        return CUDA_ERROR_OUT_OF_MEMORY; \
    return after_create(real, INSIDE(real->call), context, &request)

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE(context, ordinal, cuCtxCreate(context, flags, ordinal));
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE(context, ordinal, cuCtxCreate_v2(context, flags, ordinal));
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice ordinal)
{
    CREATE(context, ordinal, cuCtxCreate_v3(context, affinity, count, flags, ordinal));
}

CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice ordinal)
{
    CREATE(context, ordinal, cuCtxCreate_v4(context, parameters, flags, ordinal));
}

static CUresult after_destroy(CUresult rc, CUcontext context)
{
    if (rc == CUDA_SUCCESS && guest_serves())
        contexts_destroyed(context);
    return rc;
}

/* One user less: with the last of them it ends. */
CUresult cuCtxDetach(CUcontext context)
{
    const struct real *real = real_cuda();
    unsigned version;
    CUresult rc = INSIDE(real->cuCtxDetach(context));
    bool over = rc == CUDA_SUCCESS && real->cuCtxGetApiVersion != NULL && context != NULL &&
                INSIDE(real->cuCtxGetApiVersion(context, &version)) != CUDA_SUCCESS;
    return over ? after_destroy(rc, context) : rc;
}

/* A part of the card's processors with a context of its own, which allocations in it are not told apart by. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice ordinal, unsigned flags)
{
    const struct real *real = real_cuda();
    struct context_request request;
    if (!contexts_begin(&request, guest_serves() ? guest_device(ordinal) : -1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuGreenCtxCreate(green, resources, ordinal, flags));
    if (request.device >= 0 && rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (request.device >= 0 && !contexts_made(&request, (CUcontext)(void *)*green)) {
        INSIDE(real->cuGreenCtxDestroy(*green));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    const struct real *real = real_cuda();
    return after_destroy(INSIDE(real->cuGreenCtxDestroy(green)), (CUcontext)(void *)green);
}

CUresult cuCtxDestroy(CUcontext context)
{
    const struct real *real = real_cuda();
    return after_destroy(INSIDE(real->cuCtxDestroy(context)), context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    const struct real *real = real_cuda();
    return after_destroy(INSIDE(real->cuCtxDestroy_v2(context)), context);
}
