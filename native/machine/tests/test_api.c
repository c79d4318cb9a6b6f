/* The rest of the driver API: contexts, pools, address ranges, graphs, arrays, host memory, sharing, instances. */
#include "check.h"

#define MIB (1ull << 20)

typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *windows; unsigned char flags[8]; } AllocationProp;
typedef struct { Location location; int flags; } AccessDesc;
typedef struct { int type, handles; Location location; void *security; size_t most; unsigned char rest[56]; } PoolProps;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } ArrayShape;
typedef struct { char bytes[64]; } IpcHandle;
typedef unsigned long long Physical;

CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuCtxGetDevice(CUdevice *);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuDeviceGetUuid_v2(void *, CUdevice);
CUresult cuDeviceGetPCIBusId(char *, int, CUdevice);
CUresult cuDeviceGetByPCIBusId(CUdevice *, const char *);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
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
CUresult cuMemExportToShareableHandle(void *, Physical, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(Physical *, void *, int);
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
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphGetNodes(CUgraph, void **, size_t *);
CUresult cuGraphGetEdges(CUgraph, void **, void **, size_t *);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);

static uint64_t free_now(void)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
}

static void contexts_cost_memory_and_stack_up(void)
{
    fresh_machine("cards=2 memory_mib=8192 context_mib=300");
    OK(cuInit(0));
    CUcontext a, b, seen;
    unsigned flags;
    int active;
    size_t n, total;
    EQUAL(cuMemGetInfo_v2(&n, &total), 201);
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    CHECK(a == b);
    OK(cuCtxSetCurrent(a));
    EQUAL(free_now(), 7892 * MIB);
    OK(cuCtxCreate_v2(&b, 0, 0));
    EQUAL(free_now(), 7592 * MIB);
    OK(cuCtxGetCurrent(&seen));
    CHECK(seen == b);
    OK(cuCtxPopCurrent_v2(&seen));
    CHECK(seen == b);
    OK(cuCtxDestroy_v2(b));
    EQUAL(cuCtxPushCurrent_v2(b), 201);
    EQUAL(free_now(), 7892 * MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(active, 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(active, 0);
    EQUAL(cuMemGetInfo_v2(&n, &total), 709);
    EQUAL(cuDevicePrimaryCtxRelease_v2(0), 201);
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    drop_machine();
}

static void a_context_takes_its_memory_with_it(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    CUcontext context = begin(0);
    CUdeviceptr p;
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2(&p, 1000 + (size_t)i * 100000));
    OK(cuCtxDestroy_v2(context));
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    EQUAL(pumice_machine_state()->processes[0].accounts[0].requested_bytes, 0);
    drop_machine();
}

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

static void graphs_run_as_long_as_their_kernels(void)
{
    fresh_machine("virtual=1 memory_mib=8192 context_mib=300");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000000\n", "k");
    CUstream s;
    CUgraph g;
    CUgraphExec e;
    CUdeviceptr p;
    int status;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuStreamIsCapturing(s, &status));
    EQUAL(status, 1);
    for (int i = 0; i < 20; i++)
        OK(run(f, s));
    OK(cuMemAllocAsync(&p, 100 * MIB, s));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamEndCapture(s, &g));
    size_t nodes = 0, edges = 0;
    OK(cuGraphGetNodes(g, NULL, &nodes));
    OK(cuGraphGetEdges(g, NULL, NULL, &edges));
    EQUAL(nodes, 22);
    EQUAL(edges, 21);
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    uint64_t start = pumice_machine_now_ns(), base = free_now();
    OK(cuGraphLaunch(e, s));
    OK(cuGraphLaunch(e, s));
    OK(cuStreamSynchronize(s));
    EQUAL(pumice_machine_now_ns() - start, 40000000);
    EQUAL(pumice_machine_state()->processes[0].accounts[0].launches, 40);
    EQUAL(free_now(), base - 100 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    EQUAL(free_now(), base);
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
    EQUAL(cuGraphLaunch(e, s), 1);
    drop_machine();
}

static void memory_of_a_graph_can_be_freed_outside_of_it(void)
{
    fresh_machine("virtual=1 memory_mib=8192 context_mib=300");
    begin(0);
    CUstream s;
    CUgraph g;
    CUgraphExec e;
    CUdeviceptr p;
    char in[8] = "in use", out[8];
    uint64_t base = free_now();
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuMemAllocAsync(&p, 10 * MIB, s));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    EQUAL(free_now(), base); /* nothing runs yet */
    OK(cuGraphLaunch(e, s));
    EQUAL(free_now(), base - 10 * MIB);
    OK(cuMemcpyHtoD_v2(p, in, 8));
    OK(cuMemcpyDtoH_v2(out, p, 8));
    CHECK(strcmp(in, out) == 0);
    OK(cuDeviceGraphMemTrim(0));
    EQUAL(free_now(), base - 10 * MIB); /* in use: not to be trimmed */
    OK(cuMemFree_v2(p));
    OK(cuDeviceGraphMemTrim(0));
    EQUAL(free_now(), base);
    drop_machine();
}

static void a_forbidden_call_spoils_the_capture(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUstream s;
    CUgraph g;
    CUdeviceptr p;
    int mode = 2;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture_v2(s, 0));
    EQUAL(cuMemAlloc_v2(&p, 4), 900);
    EQUAL(cuStreamEndCapture(s, &g), 901);
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, 0);
    OK(cuMemAlloc_v2(&p, 4));
    OK(cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 2));
    EQUAL(cuStreamSynchronize(s), 900);
    EQUAL(cuStreamEndCapture(s, &g), 901);
    EQUAL(cuStreamEndCapture(s, &g), 401);
    EQUAL(cuStreamBeginCapture_v2(NULL, 0), 900);
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

static void cooperative_launches_must_fit_the_card(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000\n", "k");
    int blocks;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
    EQUAL(blocks, 2);
    OK(cuLaunchCooperativeKernel(f, 216, 1, 1, 1024, 1, 1, 0, NULL, NULL));
    EQUAL(cuLaunchCooperativeKernel(f, 217, 1, 1, 1024, 1, 1, 0, NULL, NULL), 720);
    OK(cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    drop_machine();
}

static void devices_are_those_that_the_environment_names(void)
{
    fresh_machine("cards=3");
    setenv("CUDA_VISIBLE_DEVICES", "GPU-0000abc2,0,7,1", 1); /* an item that names nothing ends the list */
    int count;
    char bus[32];
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    EQUAL(count, 2);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(strcmp(bus, "0000:09:00.0") == 0);
    OK(cuDeviceGetByPCIBusId(&device, "0000:07:00.0"));
    EQUAL(device, 1);
    EQUAL(cuDeviceGetByPCIBusId(&device, "0000:08:00.0"), 101);
    drop_machine();
}

static void the_fastest_card_comes_first_unless_the_bus_is_asked_for(void)
{
    fresh_machine("cards=2");
    pumice_machine_state()->card[0].sm_count = 28;
    char bus[32];
    for (int by_bus = 0; by_bus < 2; by_bus++) {
        if (child() == 0) {
            if (by_bus)
                setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
            OK(cuInit(0));
            OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
            CHECK(strcmp(bus, by_bus ? "0000:07:00.0" : "0000:08:00.0") == 0);
            exit(0);
        }
        children_end(1);
    }
    drop_machine();
}

static void an_exclusive_card_serves_one_process(void)
{
    fresh_machine("cards=2");
    struct machine_state *m = pumice_machine_state();
    m->card[0].compute_mode = 3;
    m->card[1].compute_mode = 2; /* prohibited */
    CUcontext c;
    int taken[2];
    char byte;
    CHECK(pipe(taken) == 0);
    if (child() == 0) {
        CHECK(read(taken[0], &byte, 1) == 1);
        OK(cuInit(0));
        EQUAL(cuCtxCreate_v2(&c, 0, 0), 46);
        m->card[0].compute_mode = 0;
        OK(cuCtxCreate_v2(&c, 0, 0));
        exit(0);
    }
    begin(0);
    EQUAL(cuCtxCreate_v2(&c, 0, 1), 46);
    CHECK(write(taken[1], "t", 1) == 1);
    children_end(1);
    drop_machine();
}

static void no_machine_is_no_device(void)
{
    setenv("PUMICE_MACHINE", "/nonexistent", 1);
    int version = -1;
    CUcontext c;
    EQUAL(cuInit(0), 100);
    OK(cuDriverGetVersion(&version));
    EQUAL(version, 0);
    EQUAL(cuCtxCreate_v2(&c, 0, 0), 3);
}

static int order[3], ordered;

static void note_order(void *arg)
{
    order[ordered++] = *(int *)arg;
}

static void copies_wait_for_the_host_function_in_front(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUdeviceptr p;
    CUstream s;
    static int one = 1, two = 2;
    int back = 0;
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc_v2(&p, 4));
    CUresult cuLaunch = run(kernel("pumice-kernel name=k ns=1000000\n", "k"), s);
    OK(cuLaunch);
    OK(cuLaunchHostFunc(s, note_order, &one));
    OK(cuMemcpyHtoDAsync_v2(p, order, 4, s));
    OK(cuLaunchHostFunc(s, note_order, &two));
    OK(cuMemcpyDtoHAsync_v2(&back, p, 4, s));
    OK(cuStreamSynchronize(s));
    EQUAL(ordered, 2);
    EQUAL(back, 1);
    drop_machine();
}

int main(void)
{
    apart(contexts_cost_memory_and_stack_up);
    apart(a_context_takes_its_memory_with_it);
    apart(a_pool_costs_what_it_reserved);
    apart(physical_memory_lives_until_released_and_unmapped);
    apart(graphs_run_as_long_as_their_kernels);
    apart(memory_of_a_graph_can_be_freed_outside_of_it);
    apart(a_forbidden_call_spoils_the_capture);
    apart(arrays_hold_bytes_and_cost_memory);
    apart(host_memory_is_not_the_cards);
    apart(a_handle_shares_memory_between_processes);
    apart(cooperative_launches_must_fit_the_card);
    apart(devices_are_those_that_the_environment_names);
    apart(the_fastest_card_comes_first_unless_the_bus_is_asked_for);
    apart(an_exclusive_card_serves_one_process);
    apart(no_machine_is_no_device);
    apart(copies_wait_for_the_host_function_in_front);
    return 0;
}
