/* Moving bytes: every copy is done at the call, after what the stream holds that could change them; its time goes to the stream. */
#define _GNU_SOURCE
#include "copy.h"

#include <string.h>

/* ---- ranges ---- */

/* The bytes at `address`: those of a block we know, or the program's own. False: not an address of that side. */
static bool locate(uint64_t address, enum side side, uint64_t want, char **data, uint64_t *have)
{
    struct block b;
    if (heap_find(address, &b)) {
        if (!b.data || (b.kind == M_MAPPED && !b.access))
            return false;
        uint64_t left = b.size - (address - b.address);
        *data = b.data + (address - b.address);
        *have = left < want ? left : want;
        return true;
    }
    *data = (char *)address;
    *have = want;
    return side != DEVICE_SIDE && address != 0;
}

/* Ranges from here on are not touched where that can be avoided: 70 GiB of zeros must cost nothing. */
#define LARGE (16 * MIB)

static CUresult zero_bytes(char *target, uint64_t bytes)
{
    static const char zeros[65536];
    CUresult rc = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && rc == CUDA_SUCCESS; done += sizeof zeros)
        rc = copy_bytes(target + done, zeros, bytes - done < sizeof zeros ? bytes - done : sizeof zeros);
    return rc;
}

/* Only the source's touched pages are read; what lies between them is zero, and untouched in the target too if it is ours. */
static CUresult copy_large(char *target, const char *source, uint64_t bytes)
{
    bool zero_already = arena_forget(target, bytes);
    const char *at;
    uint64_t length, done = 0;
    CUresult rc = CUDA_SUCCESS;
    while (rc == CUDA_SUCCESS && done < bytes) {
        bool some = arena_touched(source + done, bytes - done, &at, &length);
        uint64_t next = some ? (uint64_t)(at - source) : bytes;
        if (!zero_already)
            rc = zero_bytes(target + done, next - done);
        if (rc == CUDA_SUCCESS && some)
            rc = copy_bytes(target + next, at, length);
        done = some ? next + length : bytes;
    }
    return rc;
}

CUresult copy_range(uint64_t to, enum side to_side, uint64_t from, enum side from_side, uint64_t bytes)
{
    while (bytes > 0) {
        char *target, *source;
        uint64_t some, more;
        if (!locate(to, to_side, bytes, &target, &some) || !locate(from, from_side, some, &source, &more))
            return CUDA_ERROR_INVALID_VALUE;
        bool overlap = target < source + more && source < target + more;
        CUresult rc = more >= LARGE && !overlap ? copy_large(target, source, more) : copy_bytes(target, source, more);
        if (rc)
            return rc;
        to += more, from += more, bytes -= more;
    }
    return CUDA_SUCCESS;
}

static uint64_t array_address(CUarray array, size_t *pitch, size_t *slice)
{
    struct array *a = handle_get(K_ARRAY, array);
    if (!a)
        return 0;
    *pitch = a->pitch;
    *slice = a->pitch * (a->shape.Height ? a->shape.Height : 1);
    return a->address;
}

CUresult copy_box(const CUDA_MEMCPY3D *c)
{
    if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
        return CUDA_SUCCESS;
    size_t from_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes, to_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    size_t from_slice = from_pitch * (c->srcHeight ? c->srcHeight : c->Height), to_slice = to_pitch * (c->dstHeight ? c->dstHeight : c->Height);
    uint64_t from = c->srcMemoryType == 1 ? (uint64_t)c->srcHost : c->srcMemoryType == 3 ? array_address(c->srcArray, &from_pitch, &from_slice)
                                                                                         : c->srcDevice;
    uint64_t to = c->dstMemoryType == 1 ? (uint64_t)c->dstHost : c->dstMemoryType == 3 ? array_address(c->dstArray, &to_pitch, &to_slice)
                                                                                       : c->dstDevice;
    if (c->srcMemoryType < 1 || c->srcMemoryType > 4 || c->dstMemoryType < 1 || c->dstMemoryType > 4 || !from || !to ||
        c->srcXInBytes + c->WidthInBytes > from_pitch || c->dstXInBytes + c->WidthInBytes > to_pitch)
        return CUDA_ERROR_INVALID_VALUE;
    enum side from_side = c->srcMemoryType == 1 ? HOST_SIDE : c->srcMemoryType == 4 ? EITHER_SIDE : DEVICE_SIDE;
    enum side to_side = c->dstMemoryType == 1 ? HOST_SIDE : c->dstMemoryType == 4 ? EITHER_SIDE : DEVICE_SIDE;
    for (size_t z = 0; z < c->Depth; z++) {
        for (size_t y = 0; y < c->Height; y++) {
            CUresult rc = copy_range(to + (c->dstZ + z) * to_slice + (c->dstY + y) * to_pitch + c->dstXInBytes, to_side,
                                     from + (c->srcZ + z) * from_slice + (c->srcY + y) * from_pitch + c->srcXInBytes, from_side,
                                     c->WidthInBytes);
            if (rc)
                return rc;
        }
    }
    return CUDA_SUCCESS;
}

/* ---- filling ---- */

static void fill_bytes(char *target, uint32_t value, unsigned element, uint64_t bytes)
{
    if (element == 1) {
        memset(target, (int)value, bytes);
        return;
    }
    for (uint64_t i = 0; i + element <= bytes; i += element)
        memcpy(target + i, &value, element);
}

/* Zeros are what untouched memory holds. Another value is written at both ends and wherever the program has been before: the middle
 * of a large block that nobody looked at stays as it is, which is the one thing about bytes that this machine does not do. */
static void fill_large(char *target, uint32_t value, unsigned element, uint64_t bytes)
{
    if (value == 0 && arena_forget(target, bytes))
        return;
    const char *at;
    uint64_t length, done = 0;
    while (done < bytes && arena_touched(target + done, bytes - done, &at, &length)) {
        uint64_t offset = (uint64_t)(at - target) & ~3ull;
        fill_bytes(target + offset, value, element, length);
        done = offset + length;
    }
    fill_bytes(target, value, element, MIB);
    fill_bytes(target + bytes - MIB, value, element, MIB);
}

static CUresult fill_range(uint64_t to, uint32_t value, unsigned element, uint64_t bytes)
{
    while (bytes > 0) {
        char *target;
        uint64_t some;
        if (!locate(to, DEVICE_SIDE, bytes, &target, &some))
            return CUDA_ERROR_INVALID_VALUE;
        if (some >= LARGE)
            fill_large(target, value, element, some);
        else
            fill_bytes(target, value, element, some);
        to += some, bytes -= some;
    }
    return CUDA_SUCCESS;
}

CUresult fill_box(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height)
{
    if ((element != 1 && element != 2 && element != 4) || to % element || width > 1ull << 50 || height > 1ull << 50)
        return CUDA_ERROR_INVALID_VALUE;
    if (height > 1 && width * element > pitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    for (size_t y = 0; y < height && rc == CUDA_SUCCESS; y++)
        rc = fill_range(to + y * pitch, value, element, width * element);
    return rc;
}

/* ---- in a stream ---- */

/* By the model's bandwidth, what is filled as what is copied; of other nodes what is known of them. */
uint64_t moving_time(const struct node *n)
{
    if (n->type == N_MEMCPY)
        return copy_time(n->copy.WidthInBytes * n->copy.Height * n->copy.Depth);
    return n->type == N_MEMSET ? copy_time(n->memset.width * n->memset.elementSize * n->memset.height) : n->ns;
}

/* Copies that stand in a stream behind a host function wait for it, because it may write what they read. */
static CUresult in_stream(struct context *context, CUstream stream, uint64_t bytes, CUresult (*act)(const struct node *),
                          const struct node *what, bool wait)
{
    struct stream *s = stream_of(stream, context);
    if (!s)
        return stream_missing(stream);
    if (atomic_load(&s->capture)) {
        if (wait) {
            atomic_store(&s->capture, 2);
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        return capture_node(s, what);
    }
    if (atomic_load(&s->callbacks)) {
        CUresult waited = stream_wait(s);
        if (waited)
            return waited;
    }
    CUresult rc = act(what);
    if (rc)
        return rc;
    stream_submit(s, context->card, moving_time(what));
    ADD(&account_at(context->card, cu.slot)->copies_bytes, bytes);
    return wait ? stream_wait(s) : CUDA_SUCCESS;
}

static CUresult do_copy(const struct node *what)
{
    return copy_box(&what->copy);
}

static CUresult do_fill(const struct node *what)
{
    const CUDA_MEMSET_NODE_PARAMS *m = &what->memset;
    return fill_box(m->dst, m->pitch, m->value, m->elementSize, m->width, m->height);
}

static CUresult copy_line(struct context *context, uint64_t to, enum side to_side, uint64_t from, enum side from_side, uint64_t bytes,
                          CUstream stream, bool wait)
{
    static const int type_of[] = {[DEVICE_SIDE] = 2, [HOST_SIDE] = 1, [EITHER_SIDE] = 4};
    struct node what = {.type = N_MEMCPY,
                        .copy = {.srcMemoryType = type_of[from_side], .dstMemoryType = type_of[to_side], .WidthInBytes = bytes,
                                 .Height = 1, .Depth = 1}};
    if (from_side == HOST_SIDE)
        what.copy.srcHost = (const void *)from;
    else
        what.copy.srcDevice = from;
    if (to_side == HOST_SIDE)
        what.copy.dstHost = (void *)to;
    else
        what.copy.dstDevice = to;
    return in_stream(context, stream, bytes, do_copy, &what, wait);
}

static CUresult fill(struct context *context, uint64_t to, size_t pitch, size_t width, size_t height, unsigned value, unsigned element,
                     CUstream stream)
{
    struct node what = {.type = N_MEMSET, .memset = {to, pitch, value, element, width, height}};
    return in_stream(context, stream, 0, do_fill, &what, false);
}

static bool kept_from(CUdevice device, const struct block *b)
{
    const struct pool *p = b->kind == M_POOL && !b->on_host ? handle_get(K_POOL, b->owner) : NULL;
    return p && p->device != device && p->access[device] == 0;
}

/* Between two pieces of device memory: of pools a card reaches what it was given access to, where nobody says which cards they are on. */
static CUresult within_reach(struct context *context, CUstream stream, uint64_t to, uint64_t from)
{
    struct block a, b;
    if (cu.device_count < 2)
        return CUDA_SUCCESS;
    const struct stream *s = stream_of(stream, context);
    const struct context *of = s ? context_of(s->context) : NULL;
    bool known = of && heap_find(to, &a) && heap_find(from, &b);
    return known && (kept_from(of->device, &a) || kept_from(of->device, &b)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
#define WITHIN_REACH(stream, to_side_, from_side_) \
    CUresult reached = to_side_ == from_side_ ? within_reach(context, stream, (uint64_t)to, (uint64_t)from) : CUDA_SUCCESS; \
    if (reached) \
        return reached;

#define LINE(name, to_type, to_side_, from_type, from_side_) \
    EXPORT CUresult name(to_type to, from_type from, size_t bytes) \
    { \
        ENTER_CONTEXT(name, context); \
        WITHIN_REACH(NULL, to_side_, from_side_) \
        return copy_line(context, (uint64_t)to, to_side_, (uint64_t)from, from_side_, bytes, NULL, true); \
    }
#define LINE_ASYNC(name, to_type, to_side_, from_type, from_side_) \
    EXPORT CUresult name(to_type to, from_type from, size_t bytes, CUstream stream) \
    { \
        ENTER_CONTEXT(name, context); \
        WITHIN_REACH(stream, to_side_, from_side_) \
        return copy_line(context, (uint64_t)to, to_side_, (uint64_t)from, from_side_, bytes, stream, false); \
    }
LINE(cuMemcpy, CUdeviceptr, EITHER_SIDE, CUdeviceptr, EITHER_SIDE)
LINE(cuMemcpyHtoD_v2, CUdeviceptr, DEVICE_SIDE, const void *, HOST_SIDE)
LINE(cuMemcpyDtoH_v2, void *, HOST_SIDE, CUdeviceptr, DEVICE_SIDE)
LINE(cuMemcpyDtoD_v2, CUdeviceptr, DEVICE_SIDE, CUdeviceptr, DEVICE_SIDE)
LINE_ASYNC(cuMemcpyAsync, CUdeviceptr, EITHER_SIDE, CUdeviceptr, EITHER_SIDE)
LINE_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, DEVICE_SIDE, const void *, HOST_SIDE)
LINE_ASYNC(cuMemcpyDtoHAsync_v2, void *, HOST_SIDE, CUdeviceptr, DEVICE_SIDE)
LINE_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, DEVICE_SIDE, CUdeviceptr, DEVICE_SIDE)

static CUresult peer(struct context *context, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                     size_t bytes, CUstream stream, bool wait)
{
    if (!context_of(to_context) || !context_of(from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_line(context, to, DEVICE_SIDE, from, DEVICE_SIDE, bytes, stream, wait);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
{
    ENTER_CONTEXT(cuMemcpyPeer, context);
    return peer(context, to, to_context, from, from_context, bytes, NULL, true);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                                  CUstream stream)
{
    ENTER_CONTEXT(cuMemcpyPeerAsync, context);
    return peer(context, to, to_context, from, from_context, bytes, stream, false);
}

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *c)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType, .srcHost = c->srcHost,
                           .srcDevice = c->srcDevice, .srcArray = c->srcArray, .srcPitch = c->srcPitch,
                           .dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType, .dstHost = c->dstHost,
                           .dstDevice = c->dstDevice, .dstArray = c->dstArray, .dstPitch = c->dstPitch,
                           .WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1};
}

static CUresult box(struct context *context, const CUDA_MEMCPY3D *c, CUstream stream, bool wait)
{
    if (c->Height && c->Depth && c->WidthInBytes > (1ull << 50) / c->Height / c->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = c->WidthInBytes * c->Height * c->Depth;
    struct node what = {.type = N_MEMCPY, .copy = *c};
    return in_stream(context, stream, bytes, do_copy, &what, wait);
}

#define BOX(name, type, convert) \
    EXPORT CUresult name(const type *c) \
    { \
        ENTER_CONTEXT(name, context); \
        if (!c) \
            return CUDA_ERROR_INVALID_VALUE; \
        CUDA_MEMCPY3D full = convert; \
        return box(context, &full, NULL, true); \
    }
#define BOX_ASYNC(name, type, convert) \
    EXPORT CUresult name(const type *c, CUstream stream) \
    { \
        ENTER_CONTEXT(name, context); \
        if (!c) \
            return CUDA_ERROR_INVALID_VALUE; \
        CUDA_MEMCPY3D full = convert; \
        return box(context, &full, stream, false); \
    }
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "the contexts stand where the reserved words do");
BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, flat(c))
BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, flat(c))
BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, *c)
BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, *(const CUDA_MEMCPY3D *)(const void *)c)
BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, flat(c))
BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, *c)
BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, *(const CUDA_MEMCPY3D *)(const void *)c)

/* ---- arrays ---- */

static CUresult array_line(struct context *context, CUarray array, size_t offset, uint64_t other, bool to_array, bool other_on_host,
                           size_t bytes, CUstream stream, bool wait)
{
    struct array *a = handle_get(K_ARRAY, array);
    if (!a)
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset > a->bytes || bytes > a->bytes - offset)
        return CUDA_ERROR_INVALID_VALUE;
    enum side side = other_on_host ? HOST_SIDE : DEVICE_SIDE;
    if (to_array)
        return copy_line(context, a->address + offset, DEVICE_SIDE, other, side, bytes, stream, wait);
    return copy_line(context, other, side, a->address + offset, DEVICE_SIDE, bytes, stream, wait);
}

#define TO_ARRAY(name, type, host) \
    EXPORT CUresult name(CUarray to, size_t offset, type from, size_t bytes) \
    { \
        ENTER_CONTEXT(name, context); \
        return array_line(context, to, offset, (uint64_t)from, true, host, bytes, NULL, true); \
    }
#define FROM_ARRAY(name, type, host) \
    EXPORT CUresult name(type to, CUarray from, size_t offset, size_t bytes) \
    { \
        ENTER_CONTEXT(name, context); \
        return array_line(context, from, offset, (uint64_t)to, false, host, bytes, NULL, true); \
    }
TO_ARRAY(cuMemcpyDtoA_v2, CUdeviceptr, false)
TO_ARRAY(cuMemcpyHtoA_v2, const void *, true)
FROM_ARRAY(cuMemcpyAtoD_v2, CUdeviceptr, false)
FROM_ARRAY(cuMemcpyAtoH_v2, void *, true)

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream)
{
    ENTER_CONTEXT(cuMemcpyHtoAAsync_v2, context);
    return array_line(context, to, offset, (uint64_t)from, true, true, bytes, stream, false);
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
    ENTER_CONTEXT(cuMemcpyAtoHAsync_v2, context);
    return array_line(context, from, offset, (uint64_t)to, false, true, bytes, stream, false);
}

/* ---- memset ---- */

#define FILL(bits, type) \
    EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) \
    { \
        ENTER_CONTEXT(cuMemsetD##bits##_v2, context); \
        return fill(context, to, 0, count, 1, value, bits / 8, NULL); \
    } \
    EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) \
    { \
        ENTER_CONTEXT(cuMemsetD##bits##Async, context); \
        return fill(context, to, 0, count, 1, value, bits / 8, stream); \
    } \
    EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) \
    { \
        ENTER_CONTEXT(cuMemsetD2D##bits##_v2, context); \
        return fill(context, to, pitch, width, height, value, bits / 8, NULL); \
    } \
    EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) \
    { \
        ENTER_CONTEXT(cuMemsetD2D##bits##Async, context); \
        return fill(context, to, pitch, width, height, value, bits / 8, stream); \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
