/* Execution contexts of CUDA 13: the primary context of a device, or a green one. To a program a green one is the driver's green context,
 * of which the driver gives the context. */
#include "runtime.h"

#if RUNTIME == 13
static int context_of(void *execution, CUcontext *out)
{
    int rc = driver_ready();
    if (rc == 0 && (execution == NULL || THE(cuCtxFromGreenCtx)(out, execution) != CUDA_SUCCESS))
        *out = execution;
    return rc;
}

/* Runs one of the driver's calls that are about the current context. */
static int within(void *execution, int (*what)(void *), void *arg)
{
    CUcontext context, popped;
    int rc = context_of(execution, &context);
    rc = rc ? rc : THE(cuCtxPushCurrent)(context);
    if (rc)
        return rc;
    rc = what(arg);
    THE(cuCtxPopCurrent)(&popped);
    return rc;
}

EXPORT int cudaDeviceGetExecutionCtx(void **out, int device)
{
    CUcontext context;
    int rc = out ? driver_ready() : CUDA_ERROR_INVALID_VALUE;
    rc = rc ? rc : primary_of(device, &context);
    if (rc == 0)
        *out = context;
    return settle(rc);
}

enum { DEFAULT_STREAM = 1 };

EXPORT int cudaGreenCtxCreate(void **out, void *resources, int device, unsigned flags)
{
    int rc = flags == 0 ? driver_ready() : CUDA_ERROR_INVALID_VALUE;
    return settle(rc ? rc : THE(cuGreenCtxCreate)(out, resources, device, DEFAULT_STREAM));
}

EXPORT int cudaExecutionCtxDestroy(void *execution)
{
    int rc = driver_ready();
    return settle(rc ? rc : THE(cuGreenCtxDestroy)(execution));
}

struct new_stream { CUstream *out; unsigned flags; int priority; };

static int make_stream(void *arg)
{
    const struct new_stream *s = arg;
    return ((int (*)(CUstream *, unsigned, int))driver_function(F_cudaStreamCreateWithPriority, false))(s->out, s->flags, s->priority);
}

EXPORT int cudaExecutionCtxStreamCreate(CUstream *out, void *execution, unsigned flags, int priority)
{
    CUcontext context;
    int rc = context_of(execution, &context);
    if (rc == 0 && context != execution)
        return settle(flags > 1 ? CUDA_ERROR_INVALID_VALUE : THE(cuGreenCtxStreamCreate)(out, execution, 1, priority));
    return settle(rc ? rc : within(execution, make_stream, &(struct new_stream){out, flags, priority}));
}

static int tell_device(void *arg)
{
    return THE(cuCtxGetDevice)(arg);
}

EXPORT int cudaExecutionCtxGetDevice(int *device, void *execution)
{
    return settle(within(execution, tell_device, device));
}

static int synchronize(void *arg)
{
    (void)arg;
    return ((int (*)(void))driver_function(F_cudaDeviceSynchronize, false))();
}

EXPORT int cudaExecutionCtxSynchronize(void *execution)
{
    return settle(within(execution, synchronize, NULL));
}

EXPORT int cudaExecutionCtxGetId(void *execution, unsigned long long *id)
{
    CUcontext context;
    int rc = context_of(execution, &context);
    rc = rc ? rc : context != execution ? THE(cuGreenCtxGetId)(execution, id) : THE(cuCtxGetId)(context, id);
    return settle(rc);
}

EXPORT int cudaExecutionCtxGetDevResource(void *execution, void *resource, int type)
{
    CUcontext context;
    int rc = context_of(execution, &context);
    return settle(rc ? rc : THE(cuCtxGetDevResource)(context, resource, type));
}

EXPORT int cudaExecutionCtxRecordEvent(void *execution, CUevent event)
{
    CUcontext context;
    int rc = context_of(execution, &context);
    return settle(rc ? rc : THE(cuCtxRecordEvent)(context, event));
}

EXPORT int cudaExecutionCtxWaitEvent(void *execution, CUevent event)
{
    CUcontext context;
    int rc = context_of(execution, &context);
    return settle(rc ? rc : THE(cuCtxWaitEvent)(context, event));
}
#endif
