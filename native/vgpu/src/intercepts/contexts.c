/* Entries that make and end contexts; what they cost is in services/contexts.h. */
#include "intercepts/entries.h"

#include "services/greens.h"
#include "services/process_state.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    int device = process_serves() ? process_device(ordinal) : -1;
    if (device < 0 || contexts_primary_known(device))
        return CUDA(cuDevicePrimaryCtxRetain(context, ordinal));
    struct context_request request;
    if (!contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = CUDA(cuDevicePrimaryCtxRetain(context, ordinal));
    if (rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (!contexts_primary_began(&request, *context)) {
        CUDA(cuDevicePrimaryCtxRelease_v2(ordinal));
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

CUresult context_created(CUresult rc, const CUcontext *context, const struct context_request *request)
{
    if (request->device < 0)
        return rc;
    if (rc != CUDA_SUCCESS) {
        contexts_failed(request);
    } else if (!contexts_made(request, *context)) {
        CUDA(cuCtxDestroy_v2(*context));
        contexts_failed(request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

bool context_is_over(CUcontext context)
{
    unsigned version;
    return context != NULL && CUDA(cuCtxGetApiVersion(context, &version)) != CUDA_SUCCESS;
}

/* A part of the card's processors (services/greens.h): the first on a device may make its primary context. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice ordinal, unsigned flags)
{
    int device = process_serves() ? process_device(ordinal) : -1;
    struct context_request request = {.device = -1};
    bool first = device >= 0 && !contexts_primary_known(device);
    if (first && !contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    greens_begin(first ? -1 : device);
    CUresult rc = CUDA(cuGreenCtxCreate(green, resources, ordinal, flags));
    greens_end(first ? -1 : device);
    CUcontext primary = rc == CUDA_SUCCESS && device >= 0 ? greens_primary(ordinal) : NULL;
    if (first && rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (first && !contexts_primary_began(&request, primary)) {
        CUDA(cuGreenCtxDestroy(*green));
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (primary != NULL) {
        greens_made(*green, device, primary);
    }
    return rc;
}

/* With the last of them, where nobody else retained it, the primary context ends. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context = NULL;
    int device = process_serves() ? greens_device(green, &context) : -1;
    greens_begin(device);
    CUresult rc = CUDA(cuGreenCtxDestroy(green));
    if (device >= 0 && rc == CUDA_SUCCESS)
        greens_gone(context, device); /* before anybody compares: the primary context may have gone with it */
    greens_end(device);
    return rc;
}
