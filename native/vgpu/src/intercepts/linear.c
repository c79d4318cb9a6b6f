/* Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged. */
#include "intercepts/entries.h"

#include "core/log.h"
#include "core/numbers.h"
#include "services/process_state.h"

#define PITCH_GRAIN 512ull

int linear_device(const void *out, uint64_t bytes)
{
    return out != NULL && bytes != 0 && process_serves() ? process_current_device() : -1;
}

/*
 * Opt-in: the container may hold more than the card has. The driver refused although the limit did not, so the block goes to
 * managed memory that prefers the card.
 */
CUresult linear_or_beyond(CUresult rc, CUdeviceptr *pointer, size_t bytes)
{
    CUdevice device;
    int able = 0;
    if (rc != CUDA_ERROR_OUT_OF_MEMORY || !process_state.config.oversubscribe)
        return rc;
    if (CUDA(cuCtxGetDevice(&device)) != CUDA_SUCCESS ||
        CUDA(cuDeviceGetAttribute(&able, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device)) != CUDA_SUCCESS || !able)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (CUDA(cuMemAllocManaged(pointer, bytes, MANAGED_ATTACH_GLOBAL)) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA(cuMemAdvise(*pointer, bytes, ADVISE_PREFERRED_LOCATION, device));
    log_info("%zu bytes beyond the card's memory", bytes);
    return CUDA_SUCCESS;
}

/* Where the driver chose a pitch what is booked becomes pitch x height. It may have given it from a block for which there is no room. */
CUresult linear_settled(struct block_request *request, CUresult rc, CUdeviceptr pointer, uint64_t bytes)
{
    bool fits = rc != CUDA_SUCCESS || blocks_resize(request, bytes);
    if (!fits)
        CUDA(cuMemFree_v2(pointer));
    rc = fits ? rc : CUDA_ERROR_OUT_OF_MEMORY;
    if (!blocks_commit(request, rc, pointer)) {
        CUDA(cuMemFree_v2(pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    underway_end(request->device);
    return rc;
}

uint64_t pitched_bytes(uint64_t width, uint64_t height)
{
    return mul_u64(round_up(width, PITCH_GRAIN), height);
}
