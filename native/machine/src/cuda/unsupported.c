/* What this machine has no part of: memory and semaphores of graphics interfaces, green contexts, multicast, checkpoints,
 * memory operations in streams, private tables. Each answers as a driver does on a system without it. */
#include "cuda.h"

#include <string.h>

#define NOT_SUPPORTED(name) \
    EXPORT CUresult name(void) \
    { \
        ENTER(name); \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
NOT_SUPPORTED(cuImportExternalMemory)
NOT_SUPPORTED(cuExternalMemoryGetMappedBuffer)
NOT_SUPPORTED(cuExternalMemoryGetMappedMipmappedArray)
NOT_SUPPORTED(cuDestroyExternalMemory)
NOT_SUPPORTED(cuImportExternalSemaphore)
NOT_SUPPORTED(cuDestroyExternalSemaphore)
NOT_SUPPORTED(cuSignalExternalSemaphoresAsync)
NOT_SUPPORTED(cuSignalExternalSemaphoresAsync_ptsz)
NOT_SUPPORTED(cuWaitExternalSemaphoresAsync)
NOT_SUPPORTED(cuWaitExternalSemaphoresAsync_ptsz)
NOT_SUPPORTED(cuGraphAddExternalSemaphoresSignalNode)
NOT_SUPPORTED(cuGraphAddExternalSemaphoresWaitNode)
NOT_SUPPORTED(cuGraphExternalSemaphoresSignalNodeGetParams)
NOT_SUPPORTED(cuGraphExternalSemaphoresSignalNodeSetParams)
NOT_SUPPORTED(cuGraphExternalSemaphoresWaitNodeGetParams)
NOT_SUPPORTED(cuGraphExternalSemaphoresWaitNodeSetParams)
NOT_SUPPORTED(cuGraphExecExternalSemaphoresSignalNodeSetParams)
NOT_SUPPORTED(cuGraphExecExternalSemaphoresWaitNodeSetParams)
NOT_SUPPORTED(cuMemMapArrayAsync)
NOT_SUPPORTED(cuMemMapArrayAsync_ptsz)
NOT_SUPPORTED(cuGreenCtxCreate)
NOT_SUPPORTED(cuGreenCtxDestroy)
NOT_SUPPORTED(cuCtxFromGreenCtx)
NOT_SUPPORTED(cuDeviceGetDevResource)
NOT_SUPPORTED(cuMulticastCreate)
NOT_SUPPORTED(cuMulticastAddDevice)
NOT_SUPPORTED(cuMulticastBindMem)
NOT_SUPPORTED(cuMulticastBindAddr)
NOT_SUPPORTED(cuMulticastUnbind)
NOT_SUPPORTED(cuMulticastGetGranularity)
NOT_SUPPORTED(cuCheckpointProcessLock)
NOT_SUPPORTED(cuCheckpointProcessCheckpoint)
NOT_SUPPORTED(cuCheckpointProcessRestore)
NOT_SUPPORTED(cuCheckpointProcessUnlock)
NOT_SUPPORTED(cuTexObjectCreate)
NOT_SUPPORTED(cuTexObjectDestroy)
NOT_SUPPORTED(cuSurfObjectCreate)
NOT_SUPPORTED(cuSurfObjectDestroy)
NOT_SUPPORTED(cuTensorMapEncodeTiled)
NOT_SUPPORTED(cuMemGetHandleForAddressRange)
NOT_SUPPORTED(cuCoredumpGetAttribute)
NOT_SUPPORTED(cuCoredumpSetAttribute)
NOT_SUPPORTED(cuGraphAddNode)
NOT_SUPPORTED(cuGraphAddNode_v2)
NOT_SUPPORTED(cuGraphNodeSetParams)
NOT_SUPPORTED(cuGraphExecNodeSetParams)
NOT_SUPPORTED(cuGraphDebugDotPrint)
NOT_SUPPORTED(cuGraphConditionalHandleCreate)
NOT_SUPPORTED(cuUserObjectCreate)
NOT_SUPPORTED(cuUserObjectRetain)
NOT_SUPPORTED(cuUserObjectRelease)
NOT_SUPPORTED(cuGraphRetainUserObject)
NOT_SUPPORTED(cuGraphReleaseUserObject)
NOT_SUPPORTED(cuStreamWriteValue32_v2)
NOT_SUPPORTED(cuStreamWriteValue64_v2)
NOT_SUPPORTED(cuStreamWaitValue32_v2)
NOT_SUPPORTED(cuStreamWaitValue64_v2)
NOT_SUPPORTED(cuStreamBatchMemOp_v2)
NOT_SUPPORTED(cuMemcpyBatchAsync)
NOT_SUPPORTED(cuTexRefCreate)
NOT_SUPPORTED(cuTexRefDestroy)
NOT_SUPPORTED(cuGraphicsUnregisterResource)
NOT_SUPPORTED(cuGraphicsMapResources)
NOT_SUPPORTED(cuGraphicsUnmapResources)
NOT_SUPPORTED(cuArray3DCreate)
NOT_SUPPORTED(cuArrayCreate)
NOT_SUPPORTED(cuMemAllocPitch)
NOT_SUPPORTED(cuMemGetAddressRange)

/* The private tables of the runtime and the tools: none. */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuProfilerStart(void)
{
    ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuProfilerStop(void)
{
    ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}
