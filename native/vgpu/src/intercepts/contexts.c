/* Entries that make and end contexts; what they cost is in services/contexts.h. */
#include "services/contexts.h"
#include "services/guest.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    const struct real *real = real_cuda();
    int device = guest_serves() ? guest_device(ordinal) : -1;
    bool known = device < 0 || contexts_primary_known(device);
    struct free_delta before = contexts_before(known ? -1 : device);
    CUresult rc = INSIDE(real->cuDevicePrimaryCtxRetain(context, ordinal));
    if (rc == CUDA_SUCCESS && !known)
        contexts_primary_began(device, *context, &before);
    return rc;
}

static CUresult after_release(CUresult rc, CUdevice ordinal)
{
    int device = rc == CUDA_SUCCESS && guest_serves() ? guest_device(ordinal) : -1;
    if (device >= 0)
        contexts_primary_released(device);
    return rc;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_release(INSIDE(real->cuDevicePrimaryCtxRelease(device)), device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_release(INSIDE(real->cuDevicePrimaryCtxRelease_v2(device)), device);
}

static CUresult after_reset(CUresult rc, CUdevice ordinal)
{
    int device = rc == CUDA_SUCCESS && guest_serves() ? guest_device(ordinal) : -1;
    if (device >= 0)
        contexts_primary_reset(device);
    return rc;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_reset(INSIDE(real->cuDevicePrimaryCtxReset(device)), device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    const struct real *real = real_cuda();
    return after_reset(INSIDE(real->cuDevicePrimaryCtxReset_v2(device)), device);
}

static CUresult after_create(CUresult rc, const CUcontext *context, int device, const struct free_delta *before)
{
    if (rc == CUDA_SUCCESS && device >= 0)
        contexts_made(*context, device, before);
    return rc;
}

#define CREATE(context, ordinal, call) \
    const struct real *real = real_cuda(); \
    int device = guest_serves() ? guest_device(ordinal) : -1; \
    struct free_delta before = contexts_before(device); \
    return after_create(INSIDE(real->call), context, device, &before)

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
