/* Tensor maps: what a card is told of a tensor before it fetches parts of it. Here the shape is checked as NVIDIA's manual has it and
 * remembered; who reads a map is a kernel, which computes nothing. */
#include "cuda.h"

#include <string.h>

#define RANKS 5u
enum { PACKED_8 = 13, PACKED_16 = 14, PACKED_16_OF_6 = 15, TYPES };
enum { FLAT = 0, BY_16 = 1, BY_32 = 2 };
static const unsigned type_bytes[PACKED_8] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}; /* of the packed ones no element is whole bytes */
static const bool floating[PACKED_8] = {[6] = true, [7] = true, [8] = true, [9] = true, [10] = true, [11] = true, [12] = true};
static const unsigned swizzle_bytes[] = {0, 32, 64, 128, 128, 128, 128};

struct tensor_map { uint64_t address, magic, type, rank, dims[RANKS], strides[RANKS - 1], interleave; };
_Static_assert(sizeof(struct tensor_map) <= 128, "CUtensorMap");
static const uint64_t magic = 0x70616d726f736e65;

/* What every form of a map says. Where it is written need not lie at 64 bytes, whatever the manual says: cuda.core's do not. */
struct tensor {
    struct tensor_map *out;
    int type;
    unsigned rank;
    uint64_t address;
    const uint64_t *dims, *strides;
    const unsigned *steps;
    int interleave, swizzle, promotion, fill;
    unsigned inner;          /* elements of its innermost box */
};

static bool wide_packed(int type)
{
    return type == PACKED_16 || type == PACKED_16_OF_6;
}

static bool aligned(const struct tensor *t, uint64_t number)
{
    return number % (t->interleave == BY_32 || wide_packed(t->type) ? 32 : 16) == 0;
}

static bool modes_right(const struct tensor *t)
{
    if (t->interleave < FLAT || t->interleave > BY_32 || t->swizzle < 0 || t->swizzle > 6 || t->promotion < 0 || t->promotion > 3 ||
        t->fill < 0 || t->fill > 1)
        return false;
    if ((t->interleave == BY_32 && t->swizzle != 1) || (t->type == PACKED_16_OF_6 && t->interleave != FLAT))
        return false;
    return !t->fill || (t->type < PACKED_8 && floating[t->type]);
}

static bool inner_right(const struct tensor *t)
{
    if (t->inner == 0 || t->inner > 256)
        return false;
    if (wide_packed(t->type))
        return t->inner == 128;
    unsigned bytes = t->type == PACKED_8 ? t->inner / 2 : t->inner * type_bytes[t->type];
    return t->interleave != FLAT || (bytes % 16 == 0 && (t->swizzle == 0 || bytes <= swizzle_bytes[t->swizzle]));
}

static bool shape_right(const struct tensor *t)
{
    for (unsigned i = 0; i < t->rank; i++) {
        if (t->dims[i] == 0 || t->dims[i] > 1ull << 32 || (i + 1 < t->rank && (!aligned(t, t->strides[i]) || t->strides[i] >= 1ull << 40)))
            return false;
        if ((i > 0 || t->interleave != FLAT) && (t->steps[i] == 0 || t->steps[i] > 8))
            return false;
    }
    return t->dims[0] % (wide_packed(t->type) ? 128 : t->type == PACKED_8 ? 2 : 1) == 0;
}

static CUresult encode(const struct tensor *t, unsigned least_rank, unsigned least_major)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    if (card_at(context->card)->cc_major < least_major)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!t->out || t->type < 0 || t->type >= TYPES || t->rank > RANKS ||
        t->rank < (t->interleave == FLAT ? least_rank : 3) || !t->dims || (t->rank > 1 && !t->strides) || !t->steps)
        return CUDA_ERROR_INVALID_VALUE;
    if (!t->address || !aligned(t, t->address) || !modes_right(t) || !inner_right(t) || !shape_right(t))
        return CUDA_ERROR_INVALID_VALUE;
    struct tensor_map map = {.address = t->address, .magic = magic, .type = (uint64_t)t->type, .rank = t->rank,
                             .interleave = (uint64_t)t->interleave};
    memcpy(map.dims, t->dims, t->rank * sizeof *t->dims);
    if (t->rank > 1)
        memcpy(map.strides, t->strides, (t->rank - 1) * sizeof *t->strides);
    memset(t->out, 0, 128);
    memcpy(t->out, &map, sizeof map);
    return CUDA_SUCCESS;
}

#define TENSOR(channels) \
    {out, type, rank, (uint64_t)address, dims, strides, steps, interleave, swizzle, promotion, fill, channels}

EXPORT CUresult cuTensorMapEncodeTiled(struct tensor_map *out, int type, unsigned rank, void *address, const uint64_t *dims,
                                       const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                                       int promotion, int fill)
{
    ENTER(cuTensorMapEncodeTiled);
    for (unsigned i = 0; box && i < rank && rank <= RANKS; i++)
        if (box[i] == 0 || box[i] > 256)
            return CUDA_ERROR_INVALID_VALUE;
    struct tensor t = TENSOR(box ? *box : 0);
    return encode(&t, 1, 9);
}

/* The corners of a box of pixels, in the few bits that a map of this rank has for them. */
static bool corners_right(const int *lower, const int *upper, unsigned rank)
{
    const int most = rank == 3 ? 32767 : rank == 4 ? 127 : 15;
    for (unsigned i = 0; lower && upper && rank <= RANKS && i + 2 < rank; i++)
        if (lower[i] < -most - 1 || lower[i] > most || upper[i] < -most - 1 || upper[i] > most)
            return false;
    return lower && upper;
}

EXPORT CUresult cuTensorMapEncodeIm2col(struct tensor_map *out, int type, unsigned rank, void *address, const uint64_t *dims,
                                        const uint64_t *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels,
                                        const unsigned *steps, int interleave, int swizzle, int promotion, int fill)
{
    ENTER(cuTensorMapEncodeIm2col);
    struct tensor t = TENSOR(channels);
    return corners_right(lower, upper, rank) && pixels > 0 && pixels <= 1024 ? encode(&t, 3, 9) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuTensorMapEncodeIm2colWide(struct tensor_map *out, int type, unsigned rank, void *address, const uint64_t *dims,
                                            const uint64_t *strides, int lower, int upper, unsigned channels, unsigned pixels,
                                            const unsigned *steps, int interleave, int mode, int swizzle, int promotion, int fill)
{
    ENTER(cuTensorMapEncodeIm2colWide);
    struct tensor t = TENSOR(channels);
    bool right = corners_right(&lower, &upper, 3) && (mode == 1 || (mode == 0 && pixels > 0 && pixels <= 1024));
    return right ? encode(&t, 3, 10) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuTensorMapReplaceAddress(struct tensor_map *map, void *address)
{
    ENTER(cuTensorMapReplaceAddress);
    if (!map || map->magic != magic || !address ||
        !aligned(&(struct tensor){.type = (int)map->type, .interleave = (int)map->interleave}, (uint64_t)address))
        return CUDA_ERROR_INVALID_VALUE;
    map->address = (uint64_t)address;
    return CUDA_SUCCESS;
}
