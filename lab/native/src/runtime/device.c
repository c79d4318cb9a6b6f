/* A thread's device and the context it works in: the one that the program has made current by the driver API, else the primary context of
 * its device. And its last error. */
#include "runtime.h"

#include <pthread.h>

enum { DEVICES = 64 };
static struct { pthread_mutex_t mutex; CUcontext of[DEVICES]; } primaries = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static _Atomic unsigned resets;
static _Thread_local struct { int device, error; unsigned resets; } mine;

int settle(int error)
{
    if (error)
        mine.error = error;
    return error;
}

EXPORT int cudaGetLastError(void)
{
    int error = mine.error;
    mine.error = 0;
    return error;
}

EXPORT int cudaPeekAtLastError(void)
{
    return mine.error;
}

static int check_device(int device)
{
    int count = 0, rc = driver_ready();
    rc = rc ? rc : THE(cuDeviceGetCount)(&count);
    return rc ? rc : device >= 0 && device < count && device < DEVICES ? 0 : CUDA_ERROR_INVALID_DEVICE;
}

int primary_of(int device, CUcontext *out)
{
    int rc = check_device(device);
    if (rc)
        return rc;
    pthread_mutex_lock(&primaries.mutex);
    if (!primaries.of[device])
        rc = THE(cuDevicePrimaryCtxRetain)(&primaries.of[device], device);
    *out = primaries.of[device];
    pthread_mutex_unlock(&primaries.mutex);
    return rc;
}

static int go_to(int device)
{
    CUcontext primary;
    int rc = primary_of(device, &primary);
    rc = rc ? rc : THE(cuCtxSetCurrent)(primary);
    if (rc == 0) {
        mine.device = device;
        mine.resets = resets;
    }
    return rc;
}

/* After a reset the context of this thread may be gone. */
static bool usable(CUcontext context)
{
    unsigned version;
    if (mine.resets != resets && THE(cuCtxGetApiVersion)(context, &version))
        return false;
    mine.resets = resets;
    return true;
}

int in_context(void)
{
    CUcontext now = NULL;
    int rc = driver_ready();
    rc = rc ? rc : THE(cuCtxGetCurrent)(&now);
    return rc || (now && usable(now)) ? rc : go_to(mine.device);
}

EXPORT int cudaSetDevice(int device)
{
    return settle(go_to(device));
}

EXPORT int cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CUcontext primary;
    int rc = check_device(device);
    if (rc == 0 && flags & 1) /* cudaInitDeviceFlagsAreValid */
        rc = THE(cuDevicePrimaryCtxSetFlags)(device, device_flags);
    return settle(rc ? rc : primary_of(device, &primary));
}

static int device_now(int *device)
{
    CUcontext now = NULL;
    int rc = driver_ready();
    rc = rc ? rc : THE(cuCtxGetCurrent)(&now);
    if (rc == 0 && now && usable(now))
        return THE(cuCtxGetDevice)(device);
    *device = mine.device;
    return rc;
}

EXPORT int cudaGetDevice(int *device)
{
    return settle(device ? device_now(device) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cudaGetDeviceCount(int *count)
{
    if (!count)
        return settle(CUDA_ERROR_INVALID_VALUE);
    *count = 0;
    int rc = driver_ready();
    rc = rc ? rc : THE(cuDeviceGetCount)(count);
    return settle(rc ? rc : *count ? 0 : CUDA_ERROR_NO_DEVICE);
}

EXPORT int cudaSetDeviceFlags(unsigned flags)
{
    int device, rc = device_now(&device);
    return settle(rc ? rc : THE(cuDevicePrimaryCtxSetFlags)(device, flags));
}

EXPORT int cudaGetDeviceFlags(unsigned *flags)
{
    int device, active, rc = flags ? device_now(&device) : CUDA_ERROR_INVALID_VALUE;
    return settle(rc ? rc : THE(cuDevicePrimaryCtxGetState)(device, flags, &active));
}

EXPORT int cudaDeviceReset(void)
{
    int device, rc = device_now(&device);
    if (rc || device >= DEVICES)
        return settle(rc);
    pthread_mutex_lock(&primaries.mutex);
    if (primaries.of[device]) {
        THE(cuDevicePrimaryCtxRelease)(device);
        rc = THE(cuDevicePrimaryCtxReset)(device);
        primaries.of[device] = NULL;
        resets++;
    }
    pthread_mutex_unlock(&primaries.mutex);
    return settle(rc);
}

EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext other;
    int rc = in_context();
    rc = rc ? rc : primary_of(peer, &other);
    return settle(rc ? rc : THE(cuCtxEnablePeerAccess)(other, flags));
}

EXPORT int cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext other;
    int rc = in_context();
    rc = rc ? rc : primary_of(peer, &other);
    return settle(rc ? rc : THE(cuCtxDisablePeerAccess)(other));
}
