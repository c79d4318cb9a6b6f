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

static bool may_hold_more(int device)
{
    return memory_most(&process_state.map, device) > memory_limit(&process_state.map, device);
}

/* Managed memory lies on the card for good where the driver cannot move pages. */
static bool pages_move(CUdevice *device)
{
    int able = 0;
    return CUDA(cuCtxGetDevice(device)) == CUDA_SUCCESS &&
           CUDA(cuDeviceGetAttribute(&able, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, *device)) == CUDA_SUCCESS && able;
}

enum memory_type linear_type(int device)
{
    CUdevice current;
    return may_hold_more(device) && pages_move(&current) ? MEMORY_THAT_MOVES : MEMORY_DATA;
}

/*
 * What a container holds beyond that for which it asked gives way to its neighbours, so it is managed from the start. It is booked before it is
 * looked at, so that of two requests for the last room within what was asked for at most one lies on the card for good.
 */
bool linear_bursts(const struct block_request *request)
{
    return request->booked > 0 && may_hold_more(request->device) &&
           memory_used(&process_state.map, request->device) > memory_limit(&process_state.map, request->device);
}

/*
 * Opt-in: the container may hold more than the card has. The driver refused although the limit did not, so the block goes to
 * managed memory that prefers the card.
 */
CUresult linear_or_beyond(struct block_request *request, CUresult rc, CUdeviceptr *pointer, size_t bytes)
{
    CUdevice device;
    if (rc != CUDA_ERROR_OUT_OF_MEMORY || !(process_state.config.oversubscribe || may_hold_more(request->device)))
        return rc;
    if (!pages_move(&device) || CUDA(cuMemAllocManaged(pointer, bytes, MANAGED_ATTACH_GLOBAL)) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA(cuMemAdvise(*pointer, bytes, ADVISE_PREFERRED_LOCATION, device));
    request->beyond = true;
    log_info("%zu bytes beyond the card's memory", bytes);
    return CUDA_SUCCESS;
}

/* What is booked becomes pitch x height where the driver chose a pitch. It may have given it from a block for which there is no room. */
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

/* Arrays and mipmapped arrays: an estimate of their bytes is booked. */
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

/* Bytes of one row and the number of rows of a level. Unknown formats count as the widest, four bytes a channel. */
static uint64_t level_bytes(const struct array3d_descriptor *array, uint64_t width, uint64_t height, uint64_t depth)
{
    uint64_t rows = height > 0 ? height : 1, row;
    switch (array->format) {
    case FORMAT_UINT8: case FORMAT_SINT8: row = mul_u64(width, array->channels); break;
    case FORMAT_UINT16: case FORMAT_SINT16: case FORMAT_HALF: row = mul_u64(width, mul_u64(array->channels, 2)); break;
    case FORMAT_NV12: row = width, rows = rows + (rows + 1) / 2; break;
    default:
        if (array->format >= FORMAT_BC1 && array->format <= FORMAT_BC7_SRGB) {
            bool small = array->format <= FORMAT_BC1 + 1 || array->format == 0x97 || array->format == 0x98; /* BC1, BC4 */
            row = mul_u64((width + 3) / 4, small ? 8 : 16);
            rows = (rows + 3) / 4;
        } else {
            row = mul_u64(width, mul_u64(array->channels > 0 ? array->channels : 1, 4));
        }
    }
    return mul_u64(mul_u64(round_up(row, ROW_GRAIN), rows), depth > 0 ? depth : 1);
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
        sum = add_u64(sum, round_up(level_bytes(array, width, height, depth), LEVEL_GRAIN));
        if (width <= 1 && height <= 1 && (layers || depth <= 1))
            break;
        width = half(width), height = half(height), depth = layers ? depth : half(depth);
    }
    return round_up(sum, ARRAY_GRAIN);
}

int array_device(const void *out, const struct array3d_descriptor *array, unsigned levels, uint64_t *bytes)
{
    if (out == NULL || !process_serves())
        return -1;
    *bytes = array_bytes(array, levels);
    int device = *bytes == 0 ? -1 : process_current_device();
    if (device >= 0)
        blocks_mingle(device);
    return device;
}
