/* Arrays and mipmapped arrays: an estimate of their bytes is booked. */
#include "services/blocks.h"
#include "services/process_state.h"
#include "services/suballocation.h"
#include "services/underway.h"

#include <stdbool.h>

/*
 * What an array takes. The driver does not say, so it is an estimate (HAMi-core src/cuda): rows padded to 512 bytes, the whole
 * to the blocks of 2 MiB in which the driver takes memory; sparse and deferred arrays cost nothing until memory is mapped to them.
 */
#define ROW_GRAIN 512ull
#define LEVEL_GRAIN (64ull << 10)
#define ARRAY_GRAIN (2ull << 20) /* small ones may share a block, but nothing tells which */

enum {
    FORMAT_UINT8 = 0x01, FORMAT_UINT16 = 0x02, FORMAT_UINT32 = 0x03, FORMAT_SINT8 = 0x08, FORMAT_SINT16 = 0x09,
    FORMAT_SINT32 = 0x0a, FORMAT_HALF = 0x10, FORMAT_FLOAT = 0x20, FORMAT_BC1 = 0x91, FORMAT_BC7_SRGB = 0x9e, FORMAT_NV12 = 0xb0,
};

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static uint64_t rounded(uint64_t value, uint64_t grain)
{
    return value > UINT64_MAX - grain ? UINT64_MAX : (value + grain - 1) / grain * grain;
}

/* Bytes of one row and the number of rows of a level. Unknown formats count as the widest, four bytes a channel. */
static uint64_t level_bytes(const struct array3d_descriptor *array, uint64_t width, uint64_t height, uint64_t depth)
{
    uint64_t rows = height > 0 ? height : 1, row;
    switch (array->format) {
    case FORMAT_UINT8: case FORMAT_SINT8: row = product(width, array->channels); break;
    case FORMAT_UINT16: case FORMAT_SINT16: case FORMAT_HALF: row = product(width, product(array->channels, 2)); break;
    case FORMAT_NV12: row = width, rows = rows + (rows + 1) / 2; break;
    default:
        if (array->format >= FORMAT_BC1 && array->format <= FORMAT_BC7_SRGB) {
            bool small = array->format <= FORMAT_BC1 + 1 || array->format == 0x97 || array->format == 0x98; /* BC1, BC4 */
            row = product((width + 3) / 4, small ? 8 : 16);
            rows = (rows + 3) / 4;
        } else {
            row = product(width, product(array->channels > 0 ? array->channels : 1, 4));
        }
    }
    return product(product(rounded(row, ROW_GRAIN), rows), depth > 0 ? depth : 1);
}

static uint64_t half(uint64_t extent)
{
    return extent > 1 ? extent / 2 : extent;
}

/* depth of a layered or cubemap array is its number of layers or faces and does not shrink with the level. */
static uint64_t array_bytes(const struct array3d_descriptor *array, unsigned levels)
{
    if (array->flags & (ARRAY_SPARSE | ARRAY_DEFERRED))
        return 0;
    bool layers = (array->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
    uint64_t width = array->width, height = array->height, depth = array->depth, sum = 0;
    if ((array->flags & ARRAY_CUBEMAP) && depth < 6)
        depth = 6;
    for (unsigned level = 0; level < levels && level < 64; level++) {
        uint64_t bytes = level_bytes(array, width, height, depth);
        bytes = rounded(bytes, LEVEL_GRAIN);
        sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
        if (width <= 1 && height <= 1 && (layers || depth <= 1))
            break;
        width = half(width), height = half(height), depth = layers ? depth : half(depth);
    }
    return sum == UINT64_MAX ? sum : rounded(sum, ARRAY_GRAIN);
}

static struct array3d_descriptor flat(size_t width, size_t height, int format, unsigned channels)
{
    return (struct array3d_descriptor){.width = width, .height = height, .format = format, .channels = channels};
}

/* The device to book on, with the bytes in *bytes; -1 when the call goes to the driver as it is. */
static int booking(const struct real *real, const void *out, const struct array3d_descriptor *array, unsigned levels, uint64_t *bytes)
{
    if (out == NULL || !process_serves())
        return -1;
    *bytes = array_bytes(array, levels);
    return *bytes == 0 ? -1 : process_current_device(real);
}

#define CREATE_BOOKED(real, out, descriptor3d, levels, call) \
    uint64_t bytes; \
    int device = booking(real, out, descriptor3d, levels, &bytes); \
    if (device < 0) \
        return INSIDE(call); \
    underway_begin(device); \
    blocks_mingle(device); \
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY; \
    if (process_reserve(device, bytes)) { \
        rc = INSIDE(call); \
        process_commit(rc, RECORD_ARRAY, (uint64_t)(uintptr_t)*(out), device, bytes); \
        if (rc == CUDA_SUCCESS) \
            suballocation_paid(device, WITH_ARRAYS, (int64_t)bytes); \
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
    if (!process_serves())
        return INSIDE(real->cuArrayDestroy(array));
    struct parting parting = process_part(RECORD_ARRAY, (uint64_t)(uintptr_t)array);
    return process_parted(INSIDE(real->cuArrayDestroy(array)), &parting);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    const struct real *real = real_cuda();
    if (!process_serves())
        return INSIDE(real->cuMipmappedArrayDestroy(array));
    struct parting parting = process_part(RECORD_ARRAY, (uint64_t)(uintptr_t)array);
    return process_parted(INSIDE(real->cuMipmappedArrayDestroy(array)), &parting);
}
