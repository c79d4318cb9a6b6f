/* Entries that make and end contexts; what they cost is in services/contexts.h. */
#include "services/contexts.h"
#include "services/greens.h"
#include "services/process_state.h"
#include "services/underway.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    const struct real *real = real_cuda();
    int device = process_serves() ? process_device(ordinal) : -1;
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
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

/* The driver gives back before the books do: what a look at both sees meanwhile is nothing that slipped past. */
#define END_PRIMARY(ordinal, call, book) \
    const struct real *real = real_cuda(); \
    int device = process_serves() ? process_device(ordinal) : -1; \
    underway_begin(device); \
    CUresult rc = INSIDE(real->call); \
    if (rc == CUDA_SUCCESS && device >= 0) \
        book(device); \
    underway_end(device); \
    return rc

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    END_PRIMARY(ordinal, cuDevicePrimaryCtxRelease(ordinal), contexts_primary_released);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    END_PRIMARY(ordinal, cuDevicePrimaryCtxRelease_v2(ordinal), contexts_primary_released);
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    END_PRIMARY(ordinal, cuDevicePrimaryCtxReset(ordinal), contexts_primary_reset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    END_PRIMARY(ordinal, cuDevicePrimaryCtxReset_v2(ordinal), contexts_primary_reset);
}

static CUresult after_create(const struct real *real, CUresult rc, const CUcontext *context, const struct context_request *request)
{
    if (request->device < 0)
        return rc;
    if (rc != CUDA_SUCCESS) {
        contexts_failed(request);
    } else if (!contexts_made(request, *context)) {
        INSIDE(real->cuCtxDestroy_v2(*context));
        contexts_failed(request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

#define CREATE(context, ordinal, call) \
    const struct real *real = real_cuda(); \
    struct context_request request; \
    if (!contexts_begin(&request, process_serves() ? process_device(ordinal) : -1)) \
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

#define END(context, call, over) \
    const struct real *real = real_cuda(); \
    bool serves = process_serves(); \
    int device = serves ? contexts_ending(context) : -1; \
    CUresult rc = INSIDE(real->call); \
    if (serves && rc == CUDA_SUCCESS && (over)) \
        contexts_destroyed(context); \
    underway_end(device); \
    return rc

static bool is_over(const struct real *real, CUcontext context)
{
    unsigned version;
    return real->cuCtxGetApiVersion != NULL && context != NULL && INSIDE(real->cuCtxGetApiVersion(context, &version)) != CUDA_SUCCESS;
}

/* One user less: with the last of them it ends. */
CUresult cuCtxDetach(CUcontext context)
{
    END(context, cuCtxDetach(context), is_over(real, context));
}

CUresult cuCtxDestroy(CUcontext context)
{
    END(context, cuCtxDestroy(context), true);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    END(context, cuCtxDestroy_v2(context), true);
}

/* A part of the card's processors (services/greens.h): the first on a device may make its primary context. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice ordinal, unsigned flags)
{
    const struct real *real = real_cuda();
    int device = process_serves() ? process_device(ordinal) : -1;
    struct context_request request = {.device = -1};
    bool first = device >= 0 && !contexts_primary_known(device);
    if (first && !contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    greens_begin(first ? -1 : device);
    CUresult rc = INSIDE(real->cuGreenCtxCreate(green, resources, ordinal, flags));
    greens_end(first ? -1 : device);
    CUcontext primary = rc == CUDA_SUCCESS && device >= 0 ? greens_primary(real, ordinal) : NULL;
    if (first && rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (first && !contexts_primary_began(&request, primary)) {
        INSIDE(real->cuGreenCtxDestroy(*green));
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (primary != NULL) {
        greens_made(real, *green, device, primary);
    }
    return rc;
}

/* With the last of them, where nobody else retained it, the primary context ends. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    const struct real *real = real_cuda();
    CUcontext context = NULL;
    int device = process_serves() ? greens_device(real, green, &context) : -1;
    greens_begin(device);
    CUresult rc = INSIDE(real->cuGreenCtxDestroy(green));
    if (device >= 0 && rc == CUDA_SUCCESS)
        greens_gone(context, device); /* before anybody compares: the primary context may have gone with it */
    greens_end(device);
    return rc;
}
