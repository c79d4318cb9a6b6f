/* Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and cuMemFree. */
#include "core/log.h"
#include "services/blocks.h"
#include "services/process_state.h"
#include "services/underway.h"

#define PITCH_GRAIN 512ull

/* The device to book on; -1 when the call goes to the driver as it is. */
static int booking_device(const struct real *real, const void *out, uint64_t bytes)
{
    return out != NULL && bytes != 0 && process_serves() ? process_current_device(real) : -1;
}

/*
 * Opt-in: the container may hold more than the card has. The driver refused although the limit did not, so the block goes to
 * managed memory that prefers the card.
 */
static CUresult allocate_beyond(const struct real *real, CUdeviceptr *pointer, size_t bytes)
{
    CUdevice device;
    int able = 0;
    if (INSIDE(real->cuCtxGetDevice(&device)) != CUDA_SUCCESS || real->cuDeviceGetAttribute == NULL ||
        INSIDE(real->cuDeviceGetAttribute(&able, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device)) != CUDA_SUCCESS || !able)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAllocManaged(pointer, bytes, MANAGED_ATTACH_GLOBAL));
    if (rc != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (real->cuMemAdvise != NULL)
        INSIDE(real->cuMemAdvise(*pointer, bytes, ADVISE_PREFERRED_LOCATION, device));
    log_info("%zu bytes beyond the card's memory", bytes);
    return rc;
}

/* The driver gave it, but from a block that is not booked and for which there is no room: none of the program's business. */
static CUresult settled(const struct real *real, const struct block_request *request, CUresult rc, CUdeviceptr pointer)
{
    if (!blocks_commit(request, rc, pointer)) {
        INSIDE(real->cuMemFree_v2(pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    underway_end(request->device);
    return rc;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    const struct real *real = real_cuda();
    struct block_request request;
    int device = booking_device(real, pointer, bytes);
    if (device < 0)
        return INSIDE(real->cuMemAlloc_v2(pointer, bytes));
    if (!blocks_reserve(&request, device, bytes, true))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAlloc_v2(pointer, bytes));
    if (rc == CUDA_ERROR_OUT_OF_MEMORY && process_state.config.oversubscribe)
        rc = allocate_beyond(real, pointer, bytes);
    return settled(real, &request, rc, *pointer);
}

CUresult cuMemAlloc(unsigned *pointer, unsigned bytes)
{
    const struct real *real = real_cuda();
    struct block_request request;
    int device = booking_device(real, pointer, bytes);
    if (device < 0)
        return INSIDE(real->cuMemAlloc(pointer, bytes));
    if (!blocks_reserve(&request, device, bytes, true))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAlloc(pointer, bytes));
    return settled(real, &request, rc, *pointer);
}

/* SIZE_MAX when the product does not fit: such a request is refused by its size. */
static uint64_t pitched_bytes(uint64_t pitch, uint64_t height)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

static uint64_t expected_pitch(uint64_t width)
{
    return width > UINT64_MAX - PITCH_GRAIN ? UINT64_MAX : (width + PITCH_GRAIN - 1) / PITCH_GRAIN * PITCH_GRAIN;
}

/* The driver chose the pitch: what is booked becomes pitch x height. */
static CUresult settled_pitch(const struct real *real, struct block_request *request, CUresult rc, CUdeviceptr pointer, uint64_t actual)
{
    if (rc == CUDA_SUCCESS && !blocks_resize(request, actual)) {
        INSIDE(real->cuMemFree_v2(pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return settled(real, request, rc, pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    const struct real *real = real_cuda();
    struct block_request request;
    uint64_t expected = pitched_bytes(expected_pitch(width), height);
    int device = pitch == NULL ? -1 : booking_device(real, pointer, expected);
    if (device < 0)
        return INSIDE(real->cuMemAllocPitch_v2(pointer, pitch, width, height, element));
    if (!blocks_reserve(&request, device, expected, true))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAllocPitch_v2(pointer, pitch, width, height, element));
    return settled_pitch(real, &request, rc, *pointer, rc == CUDA_SUCCESS ? pitched_bytes(*pitch, height) : expected);
}

CUresult cuMemAllocPitch(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
    const struct real *real = real_cuda();
    struct block_request request;
    uint64_t expected = pitched_bytes(expected_pitch(width), height);
    int device = pitch == NULL ? -1 : booking_device(real, pointer, expected);
    if (device < 0)
        return INSIDE(real->cuMemAllocPitch(pointer, pitch, width, height, element));
    if (!blocks_reserve(&request, device, expected, true))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAllocPitch(pointer, pitch, width, height, element));
    return settled_pitch(real, &request, rc, *pointer, rc == CUDA_SUCCESS ? pitched_bytes(*pitch, height) : expected);
}

/* Counted in full: it can become resident at any moment. */
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    const struct real *real = real_cuda();
    struct block_request request;
    int device = booking_device(real, pointer, bytes);
    if (device < 0)
        return INSIDE(real->cuMemAllocManaged(pointer, bytes, flags));
    if (!blocks_reserve(&request, device, bytes, false))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(real->cuMemAllocManaged(pointer, bytes, flags));
    return settled(real, &request, rc, *pointer);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    const struct real *real = real_cuda();
    if (pointer == 0 || !process_serves())
        return INSIDE(real->cuMemFree_v2(pointer));
    struct parting parting = process_part(RECORD_LINEAR, pointer);
    return process_parted(INSIDE(real->cuMemFree_v2(pointer)), &parting);
}

CUresult cuMemFree(unsigned pointer)
{
    const struct real *real = real_cuda();
    if (pointer == 0 || !process_serves())
        return INSIDE(real->cuMemFree(pointer));
    struct parting parting = process_part(RECORD_LINEAR, pointer);
    return process_parted(INSIDE(real->cuMemFree(pointer)), &parting);
}
