/* Pools beyond a card's own: on the host, of managed memory, of other processes; what is done to ranges of managed memory at once. */
#include "check.h"

#include <fcntl.h>

#define MIB (1ull << 20)

typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *security; size_t most; unsigned char rest[56]; } PoolProps;
typedef struct { char bytes[64]; } PointerData;
enum { NONE, DEVICE, HOST, NUMA, PINNED = 1, MANAGED, DESCRIPTOR = 1 };
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, RANGE_SIZE = 12, PREFETCHED_TYPE = 7, PREFETCHED_ID = 8, PREFERRED_TYPE = 5, PREFERRED_ID = 6 };

CUresult cuMemPoolCreate(CUmemoryPool *, const PoolProps *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemGetMemPool(CUmemoryPool *, Location *, int);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *, Location *, int);
CUresult cuMemSetMemPool(Location *, int, CUmemoryPool);
CUresult cuMemPoolGetAccess(int *, CUmemoryPool, Location *);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemPoolExportToShareableHandle(void *, CUmemoryPool, int, unsigned long long);
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *, void *, int, unsigned long long);
CUresult cuMemPoolExportPointer(PointerData *, CUdeviceptr);
CUresult cuMemPoolImportPointer(CUdeviceptr *, CUmemoryPool, PointerData *);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuMemAdvise_v2(CUdeviceptr, size_t, int, Location);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, Location *, size_t *, size_t, unsigned long long, CUstream);
CUresult cuMemDiscardBatchAsync(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream);
CUresult cuMemRangeGetAttribute(void *, size_t, int, CUdeviceptr, size_t);

static void memory_of_a_pool_is_of_the_pools_kind(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    static const struct { int type; Location location; unsigned memory; int managed; bool costs; } cases[] = {
        {PINNED, {DEVICE, 0}, 2, 0, true}, {PINNED, {HOST, 0}, 1, 0, false}, {PINNED, {NUMA, 0}, 1, 0, false},
        {MANAGED, {NONE, 0}, 2, 1, true}, {MANAGED, {DEVICE, 0}, 2, 1, true}, {MANAGED, {HOST, 0}, 2, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUmemoryPool made, built_in, now;
        CUdeviceptr p;
        unsigned memory;
        int managed;
        Location where = cases[i].location;
        uint64_t base = free_now();
        OK(cuMemPoolCreate(&made, &(PoolProps){.type = cases[i].type, .location = where}));
        OK(cuMemAllocFromPoolAsync(&p, MIB, made, NULL));
        CHECK((free_now() < base) == cases[i].costs);
        OK(cuPointerGetAttribute(&memory, MEMORY_TYPE, p));
        OK(cuPointerGetAttribute(&managed, IS_MANAGED, p));
        EQUAL(memory, cases[i].memory);
        EQUAL(managed, cases[i].managed);
        if (where.type != DEVICE || managed)
            *(char *)p = 1; /* the host may follow it */
        OK(cuMemFreeAsync(p, NULL));
        OK(cuMemGetMemPool(&built_in, &where, cases[i].type));
        OK(cuMemSetMemPool(&where, cases[i].type, made));
        OK(cuMemGetMemPool(&now, &where, cases[i].type));
        CHECK(now == made && built_in != made);
        OK(cuMemGetDefaultMemPool(&now, &where, cases[i].type));
        CHECK(now == built_in);
        OK(cuMemPoolDestroy(made));
        OK(cuMemGetMemPool(&now, &where, cases[i].type));
        CHECK(now == built_in);
        EQUAL(free_now(), base);
    }
    CUmemoryPool pool;
    EQUAL(cuMemPoolCreate(&pool, &(PoolProps){.type = PINNED, .location = {NONE, 0}}), 1);
    EQUAL(cuMemPoolCreate(&pool, &(PoolProps){.type = PINNED, .location = {DEVICE, 99}}), 101);
    EQUAL(cuMemPoolCreate(&pool, &(PoolProps){.type = 3, .location = {DEVICE, 0}}), 1);
    OK(cuMemGetMemPool(&pool, &(Location){DEVICE, 0}, PINNED));
    EQUAL(cuMemSetMemPool(&(Location){HOST, 0}, PINNED, pool), 1);
    CUdeviceptr none = 7;
    OK(cuMemAllocFromPoolAsync(&none, 0, pool, NULL)); /* of no bytes: no place, and no mistake */
    EQUAL(none, 0);
    OK(cuMemFreeAsync(none, NULL));
    drop_machine();
}

static void ranges_of_managed_memory_go_where_they_are_sent(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    CUmemoryPool pool;
    CUdeviceptr p[3], device;
    size_t bytes[3] = {MIB, MIB, MIB}, first[2] = {0, 2};
    Location to[2] = {{DEVICE, 0}, {NUMA, 5}};
    int type, id;
    OK(cuMemGetMemPool(&pool, &(Location){NONE, 0}, MANAGED));
    for (int i = 0; i < 3; i++)
        OK(cuMemAllocFromPoolAsync(&p[i], MIB, pool, NULL));
    OK(cuMemPrefetchBatchAsync(p, bytes, 3, to, first, 2, 0, NULL));
    OK(cuMemRangeGetAttribute(&type, 4, PREFETCHED_TYPE, p[1], MIB));
    EQUAL(type, DEVICE);
    OK(cuMemRangeGetAttribute(&type, 4, PREFETCHED_TYPE, p[2], MIB));
    OK(cuMemRangeGetAttribute(&id, 4, PREFETCHED_ID, p[2], MIB));
    EQUAL(type, NUMA);
    EQUAL(id, 5);
    OK(cuMemAdvise_v2(p[0], MIB, 3, (Location){HOST, 0}));
    OK(cuMemRangeGetAttribute(&type, 4, PREFERRED_TYPE, p[0], MIB));
    EQUAL(type, HOST);
    first[1] = 0;
    EQUAL(cuMemPrefetchBatchAsync(p, bytes, 3, to, first, 2, 0, NULL), 1);
    OK(cuMemAlloc_v2(&device, MIB));
    p[1] = device;
    EQUAL(cuMemPrefetchBatchAsync(p, bytes, 3, to, first, 1, 0, NULL), 1);
    EQUAL(cuMemDiscardBatchAsync(p, bytes, 3, 0, NULL), 1);
    OK(cuMemDiscardBatchAsync(p, bytes, 1, 0, NULL));
    drop_machine();
}

static void a_pool_is_shared_by_descriptor_and_its_blocks_by_note(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    int down[2], up[2], fd, other_fd;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    PoolProps props = {.type = PINNED, .handles = DESCRIPTOR, .location = {DEVICE, 0}};
    PointerData note;
    CUmemoryPool pool, other;
    CUdeviceptr p;
    char text[32] = "from the parent", path[64];
    if (child() == 0) {
        size_t size;
        pid_t parent = getppid();
        CHECK(read(down[0], &note, sizeof note) == sizeof note && read(down[0], &fd, sizeof fd) == sizeof fd &&
              read(down[0], &other_fd, sizeof other_fd) == sizeof other_fd);
        begin(0);
        uint64_t base = free_now();
        int *mine[] = {&fd, &other_fd};
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "/proc/%d/fd/%d", parent, *mine[i]);
            *mine[i] = open(path, O_RDONLY);
        }
        OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(long)fd, DESCRIPTOR, 0));
        OK(cuMemPoolImportFromShareableHandle(&other, (void *)(long)other_fd, DESCRIPTOR, 0));
        EQUAL(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL), 1);
        EQUAL(cuMemPoolImportPointer(&p, other, &note), 1); /* a block of another pool */
        OK(cuMemPoolImportPointer(&p, pool, &note));
        OK(cuPointerGetAttribute(&size, RANGE_SIZE, p));
        EQUAL(size, 1000);
        EQUAL(free_now(), base); /* the exporter pays */
        OK(cuMemcpyDtoH_v2(text, p, sizeof text));
        CHECK(strcmp(text, "from the parent") == 0);
        OK(cuMemcpyHtoD_v2(p, "from the child", 15));
        OK(cuMemFreeAsync(p, NULL));
        OK(cuMemPoolDestroy(pool));
        PointerData wrong = note;
        wrong.bytes[0] ^= 1;
        EQUAL(cuMemPoolImportPointer(&p, other, &wrong), 1);
        CHECK(write(up[1], "d", 1) == 1);
        exit(0);
    }
    begin(0);
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolCreate(&other, &props));
    OK(cuMemAllocFromPoolAsync(&p, 1000, pool, NULL));
    OK(cuMemcpyHtoD_v2(p, text, sizeof text));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, DESCRIPTOR, 0));
    OK(cuMemPoolExportToShareableHandle(&other_fd, other, DESCRIPTOR, 0));
    OK(cuMemPoolExportPointer(&note, p));
    CHECK(write(down[1], &note, sizeof note) == sizeof note && write(down[1], &fd, sizeof fd) == sizeof fd &&
          write(down[1], &other_fd, sizeof other_fd) == sizeof other_fd);
    CHECK(read(up[0], text, 1) == 1);
    OK(cuMemcpyDtoH_v2(text, p, sizeof text));
    CHECK(strcmp(text, "from the child") == 0);
    CUmemoryPool own;
    OK(cuMemGetMemPool(&own, &(Location){DEVICE, 0}, PINNED));
    EQUAL(cuMemPoolExportToShareableHandle(&fd, own, DESCRIPTOR, 0), 1); /* made without handles */
    children_end(1);
    drop_machine();
}

int main(void)
{
    apart(memory_of_a_pool_is_of_the_pools_kind);
    apart(ranges_of_managed_memory_go_where_they_are_sent);
    apart(a_pool_is_shared_by_descriptor_and_its_blocks_by_note);
    return 0;
}
