/* The variants for programs built with a default stream per thread: stream 0 means the calling thread's own.
 * _ptsz for calls that take a stream, _ptds for synchronous copies, which use that stream and wait for it. */
#include "objects.h"

#include <string.h>

#define PTSZ(name, parameters, arguments) \
    CUresult name parameters; \
    EXPORT CUresult name##_ptsz parameters \
    { \
        return name arguments; \
    }

/* A copy that the driver has no asynchronous form of: behind the thread's own stream. */
#define PTDS_AFTER(name, parameters, arguments) \
    CUresult name parameters; \
    EXPORT CUresult name##_ptds parameters \
    { \
        CUresult rc = cuStreamSynchronize(CU_STREAM_PER_THREAD); \
        return rc ? rc : name arguments; \
    }

#define PTDS(name, async, parameters, arguments) \
    EXPORT CUresult name##_ptds parameters \
    { \
        CUresult rc = async arguments; \
        return rc ? rc : cuStreamSynchronize(CU_STREAM_PER_THREAD); \
    }

PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, PER_THREAD(stream)))
PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, PER_THREAD(stream), flags))
PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, PER_THREAD(stream)))
PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, PER_THREAD(stream)))
PTSZ(cuLaunchCooperativeKernel, (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params),
     (f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(stream), params))
PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (PER_THREAD(stream), function, data))
PTSZ(cuLaunchHostFunc_v2, (CUstream stream, CUhostFn function, void *data, unsigned int mode),
     (PER_THREAD(stream), function, data, mode))
PTSZ(cuLaunchKernel, (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra),
     (f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(stream), params, extra))
PTSZ(cuMemAllocAsync, (CUdeviceptr *out, size_t bytes, CUstream stream), (out, bytes, PER_THREAD(stream)))
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream),
     (out, bytes, pool, PER_THREAD(stream)))
PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, PER_THREAD(stream)))
PTSZ(cuMemDiscardAndPrefetchBatchAsync,
     (CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *places, size_t *first, size_t place_count, unsigned long long flags,
      CUstream stream),
     (addresses, bytes, count, places, first, place_count, flags, PER_THREAD(stream)))
PTSZ(cuMemDiscardBatchAsync, (CUdeviceptr *addresses, size_t *bytes, size_t count, unsigned long long flags, CUstream stream),
     (addresses, bytes, count, flags, PER_THREAD(stream)))
PTSZ(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
     (address, bytes, device, PER_THREAD(stream)))
PTSZ(cuMemPrefetchAsync_v2, (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
     (address, bytes, location, flags, PER_THREAD(stream)))
PTSZ(cuMemPrefetchBatchAsync,
     (CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *places, size_t *first, size_t place_count, unsigned long long flags,
      CUstream stream),
     (addresses, bytes, count, places, first, place_count, flags, PER_THREAD(stream)))
PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *c, CUstream stream), (c, PER_THREAD(stream)))
PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *c, CUstream stream), (c, PER_THREAD(stream)))
PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *c, CUstream stream), (c, PER_THREAD(stream)))
PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t offset, size_t bytes, CUstream stream),
     (to, from, offset, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyHtoAAsync_v2, (CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream),
     (to, offset, from, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
     (to, from, bytes, PER_THREAD(stream)))
PTSZ(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream),
     (to, to_context, from, from_context, bytes, PER_THREAD(stream)))
PTSZ(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
     (to, value, count, PER_THREAD(stream)))
PTSZ(cuMemsetD2D16Async, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),
     (to, pitch, value, width, height, PER_THREAD(stream)))
PTSZ(cuMemsetD2D32Async, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream),
     (to, pitch, value, width, height, PER_THREAD(stream)))
PTSZ(cuMemsetD2D8Async, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
     (to, pitch, value, width, height, PER_THREAD(stream)))
PTSZ(cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),
     (to, value, count, PER_THREAD(stream)))
PTSZ(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
     (to, value, count, PER_THREAD(stream)))
PTSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
     (PER_THREAD(stream), callback, data, flags))
PTSZ(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
     (PER_THREAD(stream), address, length, flags))
PTSZ(cuStreamBeginCapture, (CUstream stream), (PER_THREAD(stream)))
PTSZ(cuStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *data, size_t count, int mode),
     (PER_THREAD(stream), graph, after, data, count, mode))
PTSZ(cuStreamBeginCapture_v2, (CUstream stream, int mode), (PER_THREAD(stream), mode))
PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *out), (PER_THREAD(stream), out))
PTSZ(cuStreamGetCaptureInfo, (CUstream stream, int *status, unsigned long long *id), (PER_THREAD(stream), status, id))
PTSZ(cuStreamGetCaptureInfo_v2, (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **after, size_t *count),
     (PER_THREAD(stream), status, id, graph, after, count))
PTSZ(cuStreamGetCaptureInfo_v3, (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **after, const void **data, size_t *count),
     (PER_THREAD(stream), status, id, graph, after, data, count))
PTSZ(cuStreamCopyAttributes, (CUstream to, CUstream from), (PER_THREAD(to), PER_THREAD(from)))
PTSZ(cuStreamGetAttribute, (CUstream stream, int attribute, void *value), (PER_THREAD(stream), attribute, value))
PTSZ(cuStreamSetAttribute, (CUstream stream, int attribute, const void *value), (PER_THREAD(stream), attribute, value))
PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext *out), (PER_THREAD(stream), out))
PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *out, CUgreenCtx *green), (PER_THREAD(stream), out, green))
PTSZ(cuStreamGetDevResource, (CUstream stream, CUdevResource *out, int type), (PER_THREAD(stream), out, type))
PTSZ(cuStreamGetDevice, (CUstream stream, CUdevice *device), (PER_THREAD(stream), device))
PTSZ(cuStreamGetFlags, (CUstream stream, unsigned int *flags), (PER_THREAD(stream), flags))
PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *id), (PER_THREAD(stream), id))
PTSZ(cuStreamGetPriority, (CUstream stream, int *priority), (PER_THREAD(stream), priority))
PTSZ(cuStreamIsCapturing, (CUstream stream, int *status), (PER_THREAD(stream), status))
PTSZ(cuStreamQuery, (CUstream stream), (PER_THREAD(stream)))
PTSZ(cuStreamSynchronize, (CUstream stream), (PER_THREAD(stream)))
PTSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
     (PER_THREAD(stream), nodes, count, flags))
PTSZ(cuStreamUpdateCaptureDependencies_v2, (CUstream stream, CUgraphNode *nodes, const void *data, size_t count, unsigned int flags),
     (PER_THREAD(stream), nodes, data, count, flags))
PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (PER_THREAD(stream), event, flags))

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra);
EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    if (!config)
        return cuLaunchKernelEx(config, f, params, extra);
    CUlaunchConfig own = *config;
    own.hStream = PER_THREAD(own.hStream);
    return cuLaunchKernelEx(&own, f, params, extra);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, void *params);
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph, void *params)
{
    return cuGraphInstantiateWithParams(out, graph, params);
}

PTDS(cuMemcpy, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes),
     (to, from, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes),
     (to, from, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
     (to, from, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyHtoA_v2, cuMemcpyHtoAAsync_v2, (CUarray to, size_t offset, const void *from, size_t bytes),
     (to, offset, from, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyAtoH_v2, cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t offset, size_t bytes),
     (to, from, offset, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpyPeer, cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
     (to, to_context, from, from_context, bytes, CU_STREAM_PER_THREAD))
PTDS(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *c), (c, CU_STREAM_PER_THREAD))
PTDS(cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *c), (c, CU_STREAM_PER_THREAD))
PTDS(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *c), (c, CU_STREAM_PER_THREAD))
PTDS(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *c), (c, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD8_v2, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count),
     (to, value, count, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD16_v2, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count),
     (to, value, count, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD32_v2, cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count),
     (to, value, count, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD2D8_v2, cuMemsetD2D8Async, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
     (to, pitch, value, width, height, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD2D16_v2, cuMemsetD2D16Async, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
     (to, pitch, value, width, height, CU_STREAM_PER_THREAD))
PTDS(cuMemsetD2D32_v2, cuMemsetD2D32Async, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height),
     (to, pitch, value, width, height, CU_STREAM_PER_THREAD))
PTDS_AFTER(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
PTDS_AFTER(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), (to, offset, from, bytes))
