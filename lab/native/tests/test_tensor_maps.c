/* Tensor maps and clusters of blocks: what cards from compute capability 9.0 on have. */
#include "check.h"

typedef struct { _Alignas(128) unsigned long long opaque[16]; } TensorMap;
struct attribute { int id, pad; unsigned value[16]; };
struct config { unsigned grid[3], block[3], shared; CUstream stream; struct attribute *attributes; unsigned count; };
enum { FLOAT32 = 7, UINT8 = 0, CLUSTER_DIMENSION = 4 };

CUresult cuTensorMapEncodeTiled(TensorMap *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *, const unsigned *,
                                int, int, int, int);
CUresult cuTensorMapEncodeIm2col(TensorMap *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *, const int *, unsigned,
                                 unsigned, const unsigned *, int, int, int, int);
CUresult cuTensorMapReplaceAddress(TensorMap *, void *);
CUresult cuOccupancyMaxPotentialClusterSize(int *, CUfunction, const struct config *);
CUresult cuOccupancyMaxActiveClusters(int *, CUfunction, const struct config *);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *, CUfunction, int, int);

struct tiled { int type; unsigned rank, box; uint64_t stride; int interleave, swizzle, fill; unsigned offset; };

static CUresult tiled(struct tiled t, CUdeviceptr p)
{
    TensorMap map;
    const uint64_t dims[5] = {64, 8, 8, 1, 1}, strides[4] = {t.stride, 8 * t.stride, 64 * t.stride, 64 * t.stride};
    const unsigned box[5] = {t.box, 4, 4, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
    return cuTensorMapEncodeTiled(&map, t.type, t.rank, (char *)p + t.offset, dims, strides, box, steps, t.interleave, t.swizzle, 0, t.fill);
}

static void a_map_is_made_of_shapes_that_the_card_can_fetch(void)
{
    fresh_machine("cc_major=9");
    begin(0);
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 1 << 20));
    static const struct { struct tiled t; CUresult answer; } cases[] = {
        {{FLOAT32, 1, 64, 256, 0, 0, 0, 0}, 0}, {{FLOAT32, 5, 64, 256, 0, 0, 0, 0}, 0}, {{FLOAT32, 6, 64, 256, 0, 0, 0, 0}, 1},
        {{FLOAT32, 0, 64, 256, 0, 0, 0, 0}, 1}, {{16, 2, 64, 256, 0, 0, 0, 0}, 1}, {{FLOAT32, 2, 257, 256, 0, 0, 0, 0}, 1},
        {{FLOAT32, 2, 3, 256, 0, 0, 0, 0}, 1},   /* 12 bytes are no multiple of 16 */
        {{FLOAT32, 2, 64, 250, 0, 0, 0, 0}, 1}, {{FLOAT32, 2, 64, 256, 0, 0, 0, 8}, 1},
        {{FLOAT32, 2, 64, 256, 0, 3, 0, 0}, 1},  /* more than a swizzle of 128 bytes */
        {{FLOAT32, 2, 32, 256, 0, 3, 0, 0}, 0}, {{FLOAT32, 2, 64, 256, 1, 0, 0, 0}, 1}, /* interleaved from rank 3 on */
        {{FLOAT32, 3, 64, 256, 2, 1, 0, 0}, 0}, {{FLOAT32, 3, 64, 256, 2, 0, 0, 0}, 1},
        {{FLOAT32, 2, 64, 256, 0, 0, 1, 0}, 0}, {{UINT8, 2, 64, 256, 0, 0, 1, 0}, 1}, /* no NaN among whole numbers */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        EQUAL(tiled(cases[i].t, p), cases[i].answer);
    TensorMap map;
    const uint64_t dims[3] = {64, 8, 8}, strides[2] = {256, 2048};
    const int corner = 0, far = 40000;
    const unsigned steps[3] = {1, 1, 1};
    EQUAL(cuTensorMapReplaceAddress(&(TensorMap){{0}}, (void *)p), 1); /* no map */
    EQUAL(cuTensorMapEncodeIm2col(&map, FLOAT32, 3, (void *)p, dims, strides, &far, &corner, 64, 4, steps, 0, 0, 0, 0), 1);
    OK(cuTensorMapEncodeIm2col(&map, FLOAT32, 3, (void *)p, dims, strides, &corner, &corner, 64, 4, steps, 0, 0, 0, 0));
    OK(cuTensorMapReplaceAddress(&map, (char *)p + 4096));
    EQUAL(cuTensorMapReplaceAddress(&map, (char *)p + 8), 1);
    drop_machine();
}

static void clusters_and_shared_memory_are_what_the_card_has_room_for(void)
{
    fresh_machine("cc_major=9");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000\n", "k");
    struct attribute by_four = {CLUSTER_DIMENSION, 0, {4, 1, 1}};
    struct config one = {{128, 1, 1}, {1024, 1, 1}, 0, NULL, NULL, 0}, four = one;
    four.attributes = &by_four, four.count = 1;
    int alone, together, size;
    OK(cuOccupancyMaxPotentialClusterSize(&size, f, &one));
    EQUAL(size, 8);
    OK(cuOccupancyMaxActiveClusters(&alone, f, &one));
    OK(cuOccupancyMaxActiveClusters(&together, f, &four));
    EQUAL(together, alone / 4);
    size_t bytes;
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 1, 64));
    EQUAL(bytes, 49152); /* as long as nobody asked for more */
    drop_machine();
}

static void older_cards_have_neither(void)
{
    fresh_machine("cc_major=8");
    begin(0);
    CUdeviceptr p;
    int size;
    OK(cuMemAlloc_v2(&p, 1 << 20));
    EQUAL(tiled((struct tiled){FLOAT32, 1, 64, 256, 0, 0, 0, 0}, p), 801);
    EQUAL(cuOccupancyMaxPotentialClusterSize(&size, kernel("pumice-kernel name=k ns=1000\n", "k"), &(struct config){.grid = {1, 1, 1}, .block = {1, 1, 1}}), 801);
    drop_machine();
}

int main(void)
{
    apart(a_map_is_made_of_shapes_that_the_card_can_fetch);
    apart(clusters_and_shared_memory_are_what_the_card_has_room_for);
    apart(older_cards_have_neither);
    return 0;
}
