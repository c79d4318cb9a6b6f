/* Memory of devices and of the host: what the driver gives, with the runtime's word on nothing at all. */
#include "runtime.h"

/* No bytes are no memory (`any`: whether there are some), and giving back nothing is fine (cudaMalloc, cudaFree and their kin). */
#define TAKE(out, any, take) \
    do { \
        int rc_ = in_context(); \
        if (rc_ == 0 && !(out)) \
            rc_ = CUDA_ERROR_INVALID_VALUE; \
        if (rc_ == 0 && !(any)) \
            *(out) = NULL; \
        return settle(rc_ || !(any) ? rc_ : take); \
    } while (0)
#define GIVE(pointer, give) \
    do { \
        int rc_ = in_context(); \
        return settle(rc_ || !(pointer) ? rc_ : give); \
    } while (0)

EXPORT int cudaMalloc(void **out, size_t bytes)
{
    TAKE(out, bytes, THE(cuMemAlloc)((CUdeviceptr *)out, bytes));
}

EXPORT int cudaMallocManaged(void **out, size_t bytes, unsigned flags)
{
    TAKE(out, bytes, THE(cuMemAllocManaged)((CUdeviceptr *)out, bytes, flags));
}

EXPORT int cudaFree(void *pointer)
{
    GIVE(pointer, THE(cuMemFree)((CUdeviceptr)pointer));
}

EXPORT int cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    TAKE(out, bytes, THE(cuMemHostAlloc)(out, bytes, flags));
}

EXPORT int cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, 0);
}

EXPORT int cudaFreeHost(void *pointer)
{
    GIVE(pointer, THE(cuMemFreeHost)(pointer));
}

EXPORT int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
    TAKE(out, width && height, pitch ? THE(cuMemAllocPitch)((CUdeviceptr *)out, pitch, width, height, 4) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cudaMalloc3D(pitched *out, extent size)
{
    if (!out)
        return settle(CUDA_ERROR_INVALID_VALUE);
    out->xsize = size.width;
    out->ysize = size.height;
    return cudaMallocPitch(&out->ptr, &out->pitch, size.width, size.height * size.depth);
}

/* ---- what a pointer is ---- */

enum { ASK_TYPE = 2, ASK_DEVICE_POINTER, ASK_HOST_POINTER, ASK_MANAGED = 8, ASK_ORDINAL = 9 }; /* CU_POINTER_ATTRIBUTE_... */
enum { UNREGISTERED, HOST, DEVICE, MANAGED };                                                  /* cudaMemoryType */
struct pointer {                                                                               /* cudaPointerAttributes */
    int type, device;
    void *device_pointer, *host_pointer;
#if RUNTIME >= 13
    long reserved[8];
#endif
};

EXPORT int cudaPointerGetAttributes(struct pointer *out, const void *pointer)
{
    int rc = in_context();
    if (rc || !out)
        return settle(rc ? rc : CUDA_ERROR_INVALID_VALUE);
    unsigned type = 0, managed = 0;
    int ordinal = -2; /* cudaInvalidDeviceId */
    void *device_pointer = NULL, *host_pointer = NULL;
    rc = THE(cuPointerGetAttributes)(5, (int[]){ASK_TYPE, ASK_DEVICE_POINTER, ASK_HOST_POINTER, ASK_MANAGED, ASK_ORDINAL},
                                     (void *[]){&type, &device_pointer, &host_pointer, &managed, &ordinal}, (CUdeviceptr)pointer);
    if (rc)
        return settle(rc);
    *out = (struct pointer){.type = managed ? MANAGED : type == DEVICE ? DEVICE : type == HOST ? HOST : UNREGISTERED};
    out->device = out->type == UNREGISTERED ? -2 : ordinal;
    out->device_pointer = device_pointer;
    out->host_pointer = out->type == UNREGISTERED ? (void *)pointer : host_pointer;
    return 0;
}

/* ---- between processes; wider arguments than the runtime's ---- */

EXPORT int cudaIpcOpenMemHandle(void **out, CUipcMemHandle handle, unsigned flags)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuIpcOpenMemHandle)((CUdeviceptr *)out, handle, flags));
}

EXPORT int cudaIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuIpcOpenEventHandle)(out, handle));
}

EXPORT int cudaMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, int type, unsigned flags)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuMemPoolExportToShareableHandle)(out, pool, type, flags));
}

EXPORT int cudaMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, int type, unsigned flags)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuMemPoolImportFromShareableHandle)(out, handle, type, flags));
}

/* ---- what needs no device ---- */

struct channel { int x, y, z, w, kind; }; /* cudaChannelFormatDesc */
EXPORT struct channel cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
    return (struct channel){x, y, z, w, kind};
}

/* ---- streams and events without flags ---- */

EXPORT int cudaStreamCreate(CUstream *out)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuStreamCreate)(out, 0));
}

EXPORT int cudaEventCreate(CUevent *out)
{
    int rc = in_context();
    return settle(rc ? rc : THE(cuEventCreate)(out, 0));
}
