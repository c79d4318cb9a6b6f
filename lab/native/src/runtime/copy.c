/* Copies and memsets: a kind of copy is a call of the driver's. Each has a variant whose default stream is the thread's own. */
#include "runtime.h"

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS }; /* cudaMemcpyKind */
enum { AT_HOST = 1, ON_DEVICE = 2, EITHER = 4 };                                     /* CUmemorytype */
static const int source_of[] = {AT_HOST, AT_HOST, ON_DEVICE, ON_DEVICE, EITHER};
static const int target_of[] = {AT_HOST, ON_DEVICE, AT_HOST, ON_DEVICE, EITHER};

/* The stream in which a copy is queued; a call that waits has none. */
struct queue { bool waits, per_thread; CUstream stream; };

/* `name` waits and is there for both default streams; `name`Async takes a stream. */
#define BOTH(name, how, parameters, arguments) \
    EXPORT int name parameters { return settle(how(arguments, (struct queue){true, false, NULL})); } \
    EXPORT int name##_ptds parameters { return settle(how(arguments, (struct queue){true, true, NULL})); }
#define BOTH_ASYNC(name, how, parameters, arguments) \
    EXPORT int name(parameters, CUstream stream) { return settle(how(arguments, (struct queue){false, false, stream})); } \
    EXPORT int name##_ptsz(parameters, CUstream stream) { return settle(how(arguments, (struct queue){false, true, stream})); }
#define PARAMETERS(...) __VA_ARGS__
#define QUEUED(name, q, ...) \
    ((q).waits ? THE_OWN(name, (q).per_thread)(__VA_ARGS__) : THE_OWN(name##Async, (q).per_thread)(__VA_ARGS__, (q).stream))

static int line(void *to, const void *from, size_t bytes, int kind, struct queue q)
{
    int rc = in_context();
    if (rc || !bytes)
        return rc;
    switch (kind) {
    case HOST_TO_DEVICE:
        return QUEUED(cuMemcpyHtoD, q, (CUdeviceptr)to, from, bytes);
    case DEVICE_TO_HOST:
        return QUEUED(cuMemcpyDtoH, q, to, (CUdeviceptr)from, bytes);
    case DEVICE_TO_DEVICE:
        return QUEUED(cuMemcpyDtoD, q, (CUdeviceptr)to, (CUdeviceptr)from, bytes);
    case HOST_TO_HOST:
    case BY_ADDRESS:
        return QUEUED(cuMemcpy, q, (CUdeviceptr)to, (CUdeviceptr)from, bytes);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

BOTH(cudaMemcpy, line, (void *to, const void *from, size_t bytes, int kind), PARAMETERS(to, from, bytes, kind))
BOTH_ASYNC(cudaMemcpyAsync, line, PARAMETERS(void *to, const void *from, size_t bytes, int kind), PARAMETERS(to, from, bytes, kind))

static int peer(void *to, int to_device, const void *from, int from_device, size_t bytes, struct queue q)
{
    CUcontext there, here;
    int rc = in_context();
    rc = rc ? rc : primary_of(to_device, &there);
    rc = rc ? rc : primary_of(from_device, &here);
    return rc || !bytes ? rc : QUEUED(cuMemcpyPeer, q, (CUdeviceptr)to, there, (CUdeviceptr)from, here, bytes);
}

EXPORT int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    return settle(peer(to, to_device, from, from_device, bytes, (struct queue){true, false, NULL}));
}
EXPORT int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream stream)
{
    return settle(peer(to, to_device, from, from_device, bytes, (struct queue){false, false, stream}));
}

static int rows_of(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, struct queue q)
{
    int rc = in_context();
    if (rc || !width || !height)
        return rc;
    if (kind < HOST_TO_HOST || kind > BY_ADDRESS)
        return cudaErrorInvalidMemcpyDirection;
    if (to_pitch < width || from_pitch < width)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = source_of[kind], .srcHost = from, .srcDevice = (CUdeviceptr)from, .srcPitch = from_pitch,
        .dstMemoryType = target_of[kind], .dstHost = to, .dstDevice = (CUdeviceptr)to, .dstPitch = to_pitch,
        .WidthInBytes = width, .Height = height,
    };
    return q.waits ? THE_OWN(cuMemcpy2DUnaligned, q.per_thread)(&copy) : THE_OWN(cuMemcpy2DAsync, q.per_thread)(&copy, q.stream);
}

#define RECTANGLE PARAMETERS(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind)
BOTH(cudaMemcpy2D, rows_of, (RECTANGLE), PARAMETERS(to, to_pitch, from, from_pitch, width, height, kind))
BOTH_ASYNC(cudaMemcpy2DAsync, rows_of, RECTANGLE, PARAMETERS(to, to_pitch, from, from_pitch, width, height, kind))

_Static_assert(sizeof(struct box) == 160, "cudaMemcpy3DParms");
int box_copy(const struct box *box, CUDA_MEMCPY3D *out)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    if (box->kind < HOST_TO_HOST || box->kind > BY_ADDRESS)
        return cudaErrorInvalidMemcpyDirection;
    if (box->from_array || box->to_array)
        return CUDA_ERROR_NOT_SUPPORTED;
    *out = (CUDA_MEMCPY3D){
        .srcXInBytes = box->from_at.width, .srcY = box->from_at.height, .srcZ = box->from_at.depth,
        .srcMemoryType = source_of[box->kind], .srcHost = box->from.ptr, .srcDevice = (CUdeviceptr)box->from.ptr,
        .srcPitch = box->from.pitch, .srcHeight = box->from.ysize,
        .dstXInBytes = box->to_at.width, .dstY = box->to_at.height, .dstZ = box->to_at.depth,
        .dstMemoryType = target_of[box->kind], .dstHost = box->to.ptr, .dstDevice = (CUdeviceptr)box->to.ptr,
        .dstPitch = box->to.pitch, .dstHeight = box->to.ysize,
        .WidthInBytes = box->size.width, .Height = box->size.height, .Depth = box->size.depth,
    };
    return 0;
}

static int box_of(const struct box *box, struct queue q)
{
    CUDA_MEMCPY3D copy;
    int rc = in_context();
    rc = rc ? rc : box_copy(box, &copy);
    return rc ? rc : QUEUED(cuMemcpy3D, q, &copy);
}

BOTH(cudaMemcpy3D, box_of, (const struct box *box), box)
BOTH_ASYNC(cudaMemcpy3DAsync, box_of, const struct box *box, box)

static int fill(void *to, int value, size_t bytes, struct queue q)
{
    int rc = in_context();
    return rc || !bytes ? rc : QUEUED(cuMemsetD8, q, (CUdeviceptr)to, (unsigned char)value, bytes);
}

static int fill_rows(void *to, size_t pitch, int value, size_t width, size_t height, struct queue q)
{
    int rc = in_context();
    return rc || !width || !height ? rc : QUEUED(cuMemsetD2D8, q, (CUdeviceptr)to, pitch, (unsigned char)value, width, height);
}

/* One layer behind the other: where the rows of a layer are all filled, all layers are one. */
static int fill_box(pitched to, int value, extent size, struct queue q)
{
    int rc = 0;
    if (size.height == to.ysize)
        return fill_rows(to.ptr, to.pitch, value, size.width, size.height * size.depth, q);
    for (size_t layer = 0; layer < size.depth && rc == 0; layer++)
        rc = fill_rows((char *)to.ptr + layer * to.pitch * to.ysize, to.pitch, value, size.width, size.height, q);
    return rc;
}

BOTH(cudaMemset, fill, (void *to, int value, size_t bytes), PARAMETERS(to, value, bytes))
BOTH_ASYNC(cudaMemsetAsync, fill, PARAMETERS(void *to, int value, size_t bytes), PARAMETERS(to, value, bytes))
BOTH(cudaMemset2D, fill_rows, (void *to, size_t pitch, int value, size_t width, size_t height), PARAMETERS(to, pitch, value, width, height))
BOTH_ASYNC(cudaMemset2DAsync, fill_rows, PARAMETERS(void *to, size_t pitch, int value, size_t width, size_t height),
           PARAMETERS(to, pitch, value, width, height))
BOTH(cudaMemset3D, fill_box, (pitched to, int value, extent size), PARAMETERS(to, value, size))
BOTH_ASYNC(cudaMemset3DAsync, fill_box, PARAMETERS(pitched to, int value, extent size), PARAMETERS(to, value, size))

/* ---- variables of the program, by their symbols ---- */

static int part_of(const void *symbol, size_t offset, size_t bytes, void **at)
{
    CUdeviceptr begin = 0;
    size_t size = 0;
    int rc = variable_of(symbol, &begin, &size);
    *at = (void *)(begin + offset);
    return rc ? rc : offset > size || bytes > size - offset ? CUDA_ERROR_INVALID_VALUE : 0;
}

static int to_symbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind, struct queue q)
{
    void *at;
    if (kind == HOST_TO_HOST || kind == DEVICE_TO_HOST)
        return cudaErrorInvalidMemcpyDirection;
    int rc = part_of(symbol, offset, bytes, &at);
    return rc ? rc : line(at, from, bytes, kind, q);
}

static int from_symbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind, struct queue q)
{
    void *at;
    if (kind == HOST_TO_HOST || kind == HOST_TO_DEVICE)
        return cudaErrorInvalidMemcpyDirection;
    int rc = part_of(symbol, offset, bytes, &at);
    return rc ? rc : line(to, at, bytes, kind, q);
}

#define INTO PARAMETERS(const void *symbol, const void *from, size_t bytes, size_t offset, int kind)
#define OUT_OF PARAMETERS(void *to, const void *symbol, size_t bytes, size_t offset, int kind)
BOTH(cudaMemcpyToSymbol, to_symbol, (INTO), PARAMETERS(symbol, from, bytes, offset, kind))
BOTH_ASYNC(cudaMemcpyToSymbolAsync, to_symbol, INTO, PARAMETERS(symbol, from, bytes, offset, kind))
BOTH(cudaMemcpyFromSymbol, from_symbol, (OUT_OF), PARAMETERS(to, symbol, bytes, offset, kind))
BOTH_ASYNC(cudaMemcpyFromSymbolAsync, from_symbol, OUT_OF, PARAMETERS(to, symbol, bytes, offset, kind))
