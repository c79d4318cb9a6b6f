/* Memory beyond cuMemAlloc: pools, physical memory, arrays, host memory, handles of other processes. */
#include "check.h"

#define MIB (1ull << 20)

typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *windows; unsigned char flags[8]; } AllocationProp;
typedef struct { Location location; int flags; } AccessDesc;
typedef struct { int type, handles; Location location; void *security; size_t most; unsigned char rest[56]; } PoolProps;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } ArrayShape;
typedef struct { char bytes[64]; } IpcHandle;
typedef unsigned long long Physical;

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuMemPoolCreate(CUmemoryPool *, const PoolProps *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemCreate(Physical *, size_t, const AllocationProp *, unsigned long long);
CUresult cuMemRelease(Physical);
CUresult cuMemRetainAllocationHandle(Physical *, void *);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, Physical, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const AccessDesc *, size_t);
CUresult cuMemGetAllocationGranularity(size_t *, const AllocationProp *, int);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemFreeHost(void *);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuIpcGetMemHandle(IpcHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, IpcHandle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuArray3DCreate_v2(CUarray *, const ArrayShape *);
CUresult cuArrayDestroy(CUarray);
CUresult cuMemcpyHtoA_v2(CUarray, size_t, const void *, size_t);
CUresult cuMemcpyAtoH_v2(void *, CUarray, size_t, size_t);

static void a_pool_costs_what_it_reserved(void)
{
    fresh_machine("memory_mib=8192 context_mib=300 virtual=1");
    begin(0);
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr p, q;
    uint64_t base = free_now(), value, keep = UINT64_MAX;
    OK(cuStreamCreate(&stream, 0));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&p, 5 * MIB, stream));
    OK(cuMemPoolGetAttribute(pool, 5, &value));
    EQUAL(value, 32 * MIB);
    EQUAL(free_now(), base - 32 * MIB);
    OK(cuMemAllocAsync(&q, 5 * MIB, stream));
    OK(cuMemPoolGetAttribute(pool, 7, &value));
    EQUAL(value, 10 * MIB);
    EQUAL(free_now(), base - 32 * MIB);
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemFreeAsync(q, stream));
    EQUAL(free_now(), base - 32 * MIB);      /* kept until somebody synchronises */
    OK(cuStreamSynchronize(stream));
    EQUAL(free_now(), base);
    OK(cuMemPoolSetAttribute(pool, 4, &keep));
    OK(cuMemAllocAsync(&p, 100 * MIB, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(free_now(), base - 100 * MIB);
    OK(cuMemAlloc_v2(&q, base - 100 * MIB)); /* the rest of the card */
    CUmemoryPool other;
    OK(cuMemPoolCreate(&other, &(PoolProps){.type = 1, .location = {1, 0}}));
    OK(cuMemAllocFromPoolAsync(&p, 50 * MIB, other, stream)); /* what the first pool hoards is used */
    EQUAL(cuMemAllocFromPoolAsync(&p, 100 * MIB, other, stream), 2);
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemPoolTrimTo(other, 0));
    OK(cuMemPoolDestroy(other));
    EQUAL(cuMemPoolDestroy(pool), 800);
    drop_machine();
}

static void physical_memory_lives_until_released_and_unmapped(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    AllocationProp prop = {.type = 1, .handles = 1, .location = {1, 0}};
    size_t granule;
    Physical h, again;
    CUdeviceptr at;
    uint64_t base = free_now();
    OK(cuMemGetAllocationGranularity(&granule, &prop, 0));
    EQUAL(granule, 2 * MIB);
    EQUAL(cuMemCreate(&h, granule + 1, &prop, 0), 1);
    EQUAL(cuMemCreate(&h, 9000 * MIB, &prop, 0), 2);
    prop.handles = 8; /* fabric */
    EQUAL(cuMemCreate(&h, 64 * MIB, &prop, 0), 801);
    prop.handles = 1;
    OK(cuMemCreate(&h, 64 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&at, 256 * MIB, 0, 0, 0));
    char in[64] = "through an address range", out[64] = "";
    OK(cuMemMap(at + 64 * MIB, 64 * MIB, 0, h, 0));
    OK(cuMemMap(at, 64 * MIB, 0, h, 0));           /* the same memory twice */
    EQUAL(cuMemMap(at, 64 * MIB, 0, h, 0), 208);
    EQUAL(cuMemcpyHtoD_v2(at, in, sizeof in), 1);  /* no access yet */
    OK(cuMemSetAccess(at, 128 * MIB, &(AccessDesc){{1, 0}, 3}, 1));
    OK(cuMemcpyHtoD_v2(at, in, sizeof in));
    OK(cuMemcpyDtoH_v2(out, at + 64 * MIB, sizeof out));
    CHECK(strcmp(in, out) == 0);
    OK(cuMemRelease(h));
    EQUAL(cuMemRelease(h), 1);
    EQUAL(free_now(), base - 64 * MIB);
    OK(cuMemRetainAllocationHandle(&again, (void *)at));
    OK(cuMemUnmap(at, 128 * MIB));
    EQUAL(free_now(), base - 64 * MIB);
    OK(cuMemRelease(again));
    EQUAL(free_now(), base);
    EQUAL(cuMemUnmap(at, 64 * MIB), 1);
    OK(cuMemAddressFree(at, 256 * MIB));
    EQUAL(cuMemAddressFree(at, 256 * MIB), 1);
    OK(cuMemCreate(&h, 64 * MIB, &(AllocationProp){.type = 1, .location = {3, 0}}, 0)); /* on the host: not the card's */
    EQUAL(free_now(), base);
    OK(cuMemRelease(h));
    drop_machine();
}

static void arrays_hold_bytes_and_cost_memory(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    CUarray a;
    uint64_t base = free_now();
    EQUAL(cuArray3DCreate_v2(&a, &(ArrayShape){1024, 1024, 0, 0x77, 4, 0}), 1);
    OK(cuArray3DCreate_v2(&a, &(ArrayShape){1024, 1024, 0, 0x20, 4, 0}));
    EQUAL(base - free_now(), 16 * MIB);
    char in[16] = "in an array", out[16];
    OK(cuMemcpyHtoA_v2(a, 32768, in, 16));
    OK(cuMemcpyAtoH_v2(out, a, 32768, 16));
    CHECK(strcmp(in, out) == 0);
    EQUAL(cuMemcpyHtoA_v2(a, 16 * MIB - 1, in, 16), 1);
    OK(cuArrayDestroy(a));
    EQUAL(cuArrayDestroy(a), 400);
    EQUAL(free_now(), base);
    drop_machine();
}

static void host_memory_is_not_the_cards(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    void *h;
    uint64_t base = free_now();
    unsigned type;
    int managed;
    static char mine[8192];
    OK(cuMemHostAlloc(&h, 64 * MIB, 0));
    memset(h, 1, 4096);
    EQUAL(free_now(), base);
    OK(cuPointerGetAttribute(&type, 2, (CUdeviceptr)h));
    EQUAL(type, 1);
    OK(cuMemFreeHost(h));
    EQUAL(cuMemFreeHost(h), 1);
    OK(cuMemHostRegister_v2(mine, sizeof mine, 0));
    EQUAL(cuMemHostRegister_v2(mine + 1, 10, 0), 712);
    OK(cuMemHostUnregister(mine));
    EQUAL(cuMemHostUnregister(mine), 713);
    CUdeviceptr m;
    OK(cuMemAllocManaged(&m, 10 * MIB, 1));
    strcpy((char *)m, "both sides");
    char out[16];
    OK(cuMemcpyDtoH_v2(out, m, 11));
    CHECK(strcmp(out, "both sides") == 0);
    OK(cuPointerGetAttribute(&managed, 8, m));
    EQUAL(managed, 1);
    EQUAL(base - free_now(), 10 * MIB);
    OK(cuMemFree_v2(m));
    EQUAL(cuPointerGetAttribute(&managed, 8, m), 1);
    drop_machine();
}

static void a_handle_shares_memory_between_processes(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    int down[2], up[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    if (child() == 0) {
        IpcHandle h;
        CUdeviceptr p;
        char text[32];
        begin(0);
        CHECK(read(down[0], &h, sizeof h) == sizeof h);
        uint64_t base = free_now();
        OK(cuIpcOpenMemHandle_v2(&p, h, 1));
        EQUAL(free_now(), base); /* the exporter pays */
        OK(cuMemcpyDtoH_v2(text, p, sizeof text));
        CHECK(strcmp(text, "from the parent") == 0);
        OK(cuMemcpyHtoD_v2(p, "from the child", 15));
        OK(cuIpcCloseMemHandle(p));
        EQUAL(cuIpcCloseMemHandle(p), 1);
        h.bytes[0] ^= 1;
        EQUAL(cuIpcOpenMemHandle_v2(&p, h, 1), 1);
        CHECK(write(up[1], "d", 1) == 1);
        exit(0);
    }
    begin(0);
    CUdeviceptr p;
    IpcHandle h;
    char text[32] = "from the parent", done;
    OK(cuMemAlloc_v2(&p, 1000));
    OK(cuMemcpyHtoD_v2(p, text, sizeof text));
    OK(cuIpcGetMemHandle(&h, p));
    CHECK(write(down[1], &h, sizeof h) == sizeof h);
    CHECK(read(up[0], &done, 1) == 1);
    OK(cuMemcpyDtoH_v2(text, p, sizeof text));
    CHECK(strcmp(text, "from the child") == 0);
    children_end(1);
    drop_machine();
}

int main(void)
{
    apart(a_pool_costs_what_it_reserved);
    apart(physical_memory_lives_until_released_and_unmapped);
    apart(arrays_hold_bytes_and_cost_memory);
    apart(host_memory_is_not_the_cards);
    apart(a_handle_shares_memory_between_processes);
    return 0;
}
