/* Arrays and mipmapped arrays: memory with a shape. */
#include "objects.h"

#include <string.h>

/* Bytes of one channel; 0: not a format. Block-compressed formats are left out. */
static unsigned format_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    case 0xb0: return 1; /* NV12 */
    default: return 0;
    }
}

enum { LAYERED = 1, CUBEMAP = 4, SPARSE = 0x40, DEFERRED = 0x80 };

static bool shape_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t *pitch, uint64_t *bytes)
{
    unsigned element = format_bytes(d->Format) * d->NumChannels;
    bool channels = d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4;
    if (!element || !channels || d->Width == 0 || d->Width > 1u << 20 || d->Height > 1u << 20 || d->Depth > 1u << 16)
        return false;
    uint64_t layers = d->Depth ? d->Depth : 1;
    *pitch = (d->Width * element + 511) & ~511ull;
    *bytes = (*pitch * (d->Height ? d->Height : 1) * layers + 65535) & ~65535ull;
    return true;
}

static CUresult make(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *shape, enum kind kind, unsigned levels, void **out)
{
    uint64_t pitch, bytes, sum = 0;
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    if (!shape_bytes(shape, &pitch, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first_pitch = pitch;
    for (unsigned i = 0; i < levels; i++) {
        shape_bytes(&level, &pitch, &bytes);
        sum += bytes;
        level.Width = level.Width > 1 ? level.Width / 2 : 1;
        level.Height = level.Height > 1 ? level.Height / 2 : level.Height;
        level.Depth = level.Depth > 1 && !(shape->Flags & LAYERED) ? level.Depth / 2 : level.Depth;
    }
    struct block *b = NULL;
    bool lazy = shape->Flags & (SPARSE | DEFERRED);
    CUresult rc = lazy ? CUDA_SUCCESS : heap_alloc(context->card, context_current_handle(), sum, M_DEVICE, &b);
    if (rc)
        return rc;
    struct array *a = handle_new(kind);
    if (!a) {
        if (b)
            heap_free(b->address, M_DEVICE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    a->shape = *shape;
    a->levels = levels;
    a->card = context->card;
    a->context = context_current_handle();
    a->address = b ? b->address : 0;
    a->pitch = first_pitch;
    a->bytes = sum;
    *out = handle_of(kind, a);
    return CUDA_SUCCESS;
}

static CUresult end(enum kind kind, void *handle)
{
    struct array *a = handle_get(kind, handle);
    if (!a || a->parent)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t address = a->address;
    if (!handle_drop(kind, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (address)
        heap_free(address, M_DEVICE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
    ENTER_CONTEXT(cuArrayCreate_v2, context);
    if (!out || !d)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    return make(context, &shape, K_ARRAY, 1, out);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    ENTER_CONTEXT(cuArray3DCreate_v2, context);
    if (!out || !d || (d->Flags & CUBEMAP && d->Depth % 6))
        return CUDA_ERROR_INVALID_VALUE;
    return make(context, d, K_ARRAY, 1, out);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    ENTER_CONTEXT(cuArrayDestroy, context);
    return end(K_ARRAY, array);
}

EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *d, CUarray array)
{
    ENTER_CONTEXT(cuArrayGetDescriptor_v2, context);
    struct array *a = handle_get(K_ARRAY, array);
    if (!d || !a)
        return a ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *d = (CUDA_ARRAY_DESCRIPTOR){a->shape.Width, a->shape.Height, a->shape.Format, a->shape.NumChannels};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *d, CUarray array)
{
    ENTER_CONTEXT(cuArray3DGetDescriptor_v2, context);
    struct array *a = handle_get(K_ARRAY, array);
    if (!d || !a)
        return a ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *d = a->shape;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    ENTER_CONTEXT(cuMipmappedArrayCreate, context);
    if (!out || !d || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned most = 1;
    for (size_t side = d->Width > d->Height ? d->Width : d->Height; side > 1; side /= 2)
        most++;
    return make(context, d, K_MIPMAP, levels < most ? levels : most, out);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    ENTER_CONTEXT(cuMipmappedArrayDestroy, context);
    return end(K_MIPMAP, array);
}

/* A level shares the memory of its array; its handle lives as long as the program cares. */
EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray array, unsigned int level)
{
    ENTER_CONTEXT(cuMipmappedArrayGetLevel, context);
    struct array *whole = handle_get(K_MIPMAP, array);
    if (!whole)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || level >= whole->levels)
        return CUDA_ERROR_INVALID_VALUE;
    struct array *a = handle_new(K_ARRAY);
    if (!a)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t offset = 0, pitch, bytes;
    CUDA_ARRAY3D_DESCRIPTOR shape = whole->shape;
    shape_bytes(&shape, &pitch, &bytes);
    for (unsigned i = 0; i < level; i++) {
        offset += bytes;
        shape.Width = shape.Width > 1 ? shape.Width / 2 : 1;
        shape.Height = shape.Height > 1 ? shape.Height / 2 : shape.Height;
        shape_bytes(&shape, &pitch, &bytes);
    }
    a->shape = shape;
    a->levels = 1;
    a->card = whole->card;
    a->context = whole->context;
    a->address = whole->address ? whole->address + offset : 0;
    a->pitch = pitch;
    a->bytes = bytes;
    a->parent = array;
    *out = handle_of(K_ARRAY, a);
    return CUDA_SUCCESS;
}
