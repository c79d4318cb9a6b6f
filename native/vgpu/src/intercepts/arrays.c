/* Arrays and mipmapped arrays: an estimate of their bytes is booked. */
#include "services/array_bytes.h"
#include "services/blocks.h"
#include "services/guest.h"
#include "services/lodging.h"
#include "services/underway.h"

static struct array3d_descriptor flat(size_t width, size_t height, int format, unsigned channels)
{
    return (struct array3d_descriptor){.width = width, .height = height, .format = format, .channels = channels};
}

/* The device to book on, with the bytes in *bytes; -1 when the call goes to the driver as it is. */
static int booking(const struct real *real, const void *out, const struct array3d_descriptor *array, unsigned levels, uint64_t *bytes)
{
    if (out == NULL || !guest_serves())
        return -1;
    *bytes = array_bytes(array, levels);
    return *bytes == 0 ? -1 : guest_current_device(real);
}

#define CREATE_BOOKED(real, out, descriptor3d, levels, call) \
    uint64_t bytes; \
    int device = booking(real, out, descriptor3d, levels, &bytes); \
    if (device < 0) \
        return INSIDE(call); \
    underway_begin(device); \
    blocks_mingle(device); \
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY; \
    if (guest_reserve(device, bytes)) { \
        rc = INSIDE(call); \
        guest_settle(rc, RECORD_ARRAY, (uint64_t)(uintptr_t)*(out), device, bytes); \
        if (rc == CUDA_SUCCESS) \
            lodging_paid(device, WITH_ARRAYS, (int64_t)bytes); \
    } \
    underway_end(device); \
    return rc

CUresult cuArrayCreate(CUarray *array, const struct array_descriptor_v1 *descriptor)
{
    const struct real *real = real_cuda();
    if (descriptor == NULL)
        return INSIDE(real->cuArrayCreate(array, descriptor));
    struct array3d_descriptor wide = flat(descriptor->width, descriptor->height, descriptor->format, descriptor->channels);
    CREATE_BOOKED(real, array, &wide, 1, real->cuArrayCreate(array, descriptor));
}

CUresult cuArrayCreate_v2(CUarray *array, const struct array_descriptor *descriptor)
{
    const struct real *real = real_cuda();
    if (descriptor == NULL)
        return INSIDE(real->cuArrayCreate_v2(array, descriptor));
    struct array3d_descriptor wide = flat(descriptor->width, descriptor->height, descriptor->format, descriptor->channels);
    CREATE_BOOKED(real, array, &wide, 1, real->cuArrayCreate_v2(array, descriptor));
}

CUresult cuArray3DCreate(CUarray *array, const struct array3d_descriptor_v1 *descriptor)
{
    const struct real *real = real_cuda();
    if (descriptor == NULL)
        return INSIDE(real->cuArray3DCreate(array, descriptor));
    struct array3d_descriptor wide = flat(descriptor->width, descriptor->height, descriptor->format, descriptor->channels);
    wide.depth = descriptor->depth;
    wide.flags = descriptor->flags;
    CREATE_BOOKED(real, array, &wide, 1, real->cuArray3DCreate(array, descriptor));
}

CUresult cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *descriptor)
{
    const struct real *real = real_cuda();
    if (descriptor == NULL)
        return INSIDE(real->cuArray3DCreate_v2(array, descriptor));
    CREATE_BOOKED(real, array, descriptor, 1, real->cuArray3DCreate_v2(array, descriptor));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const struct array3d_descriptor *descriptor, unsigned levels)
{
    const struct real *real = real_cuda();
    if (descriptor == NULL)
        return INSIDE(real->cuMipmappedArrayCreate(array, descriptor, levels));
    CREATE_BOOKED(real, array, descriptor, levels, real->cuMipmappedArrayCreate(array, descriptor, levels));
}

CUresult cuArrayDestroy(CUarray array)
{
    const struct real *real = real_cuda();
    if (!guest_serves())
        return INSIDE(real->cuArrayDestroy(array));
    struct parting parting = guest_part(RECORD_ARRAY, (uint64_t)(uintptr_t)array);
    return guest_parted(INSIDE(real->cuArrayDestroy(array)), &parting);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    const struct real *real = real_cuda();
    if (!guest_serves())
        return INSIDE(real->cuMipmappedArrayDestroy(array));
    struct parting parting = guest_part(RECORD_ARRAY, (uint64_t)(uintptr_t)array);
    return guest_parted(INSIDE(real->cuMipmappedArrayDestroy(array)), &parting);
}
