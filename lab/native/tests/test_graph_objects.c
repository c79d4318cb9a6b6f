/* Graph nodes of any kind by one call, objects that live as long as a graph wants them, advice on managed memory. */
#include "check.h"

#define MIB (1ull << 20)

struct kernel { CUfunction func; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *context; };
struct fill { CUdeviceptr dst; size_t pitch; unsigned value, element; size_t width, height; void *context; };
struct memory { int pool[22]; const void *access; size_t access_count, bytes; CUdeviceptr dptr; };
typedef struct {
    int type, reserved[3];
    union { struct kernel kernel; struct fill fill; struct memory memory; CUevent event; CUdeviceptr freed; char bytes[232]; };
    long long reserved2;
} Params;
_Static_assert(sizeof(Params) == 256, "as cuda.h has it");
enum { KERNEL = 0, FILL = 2, RECORD = 7, ALLOC = 10, FREE = 11, BATCH = 12 };

CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphAddNode(void **, CUgraph, void *const *, size_t, Params *);
CUresult cuGraphAddNode_v2(void **, CUgraph, void *const *, const void *, size_t, Params *);
CUresult cuGraphNodeSetParams(void *, Params *);
CUresult cuGraphNodeGetParams(void *, Params *);
CUresult cuGraphExecNodeSetParams(CUgraphExec, void *, Params *);
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec, void *, CUevent);
CUresult cuUserObjectCreate(void **, void *, void (*)(void *), unsigned, unsigned);
CUresult cuUserObjectRetain(void *, unsigned);
CUresult cuUserObjectRelease(void *, unsigned);
CUresult cuGraphRetainUserObject(CUgraph, void *, unsigned, unsigned);
CUresult cuGraphReleaseUserObject(CUgraph, void *, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAdvise(CUdeviceptr, size_t, int, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemRangeGetAttribute(void *, size_t, int, CUdeviceptr, size_t);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);

static void one_call_adds_nodes_of_every_kind(void)
{
    fresh_machine("virtual=1 memory_mib=8192 context_mib=300");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000000\n", "k");
    CUgraph g;
    CUgraphExec e;
    CUdeviceptr p;
    CUevent early, late;
    void *nodes[5];
    unsigned seen = 0;
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuEventCreate(&early, 0));
    OK(cuEventCreate(&late, 0));
    OK(cuGraphCreate(&g, 0));
    Params fill = {.type = FILL, .fill = {p, 0, 7, 4, 16, 1, NULL}};
    Params k = {.type = KERNEL, .kernel = {.func = f, .grid = {1, 1, 1}, .block = {1, 1, 1}}};
    Params record = {.type = RECORD, .event = early};
    Params alloc = {.type = ALLOC};
    alloc.memory.pool[0] = 1; /* pinned */
    alloc.memory.pool[2] = 1; /* on a device */
    alloc.memory.bytes = 100 * MIB;
    OK(cuGraphAddNode(&nodes[0], g, NULL, 0, &fill));
    OK(cuGraphAddNode_v2(&nodes[1], g, nodes, NULL, 1, &k));
    OK(cuGraphAddNode(&nodes[2], g, &nodes[1], 1, &record));
    OK(cuGraphAddNode(&nodes[3], g, &nodes[2], 1, &alloc));
    CHECK(alloc.memory.dptr != 0);
    OK(cuGraphAddNode(&nodes[4], g, &nodes[3], 1, &(Params){.type = FREE, .freed = alloc.memory.dptr}));
    EQUAL(cuGraphAddNode(&nodes[4], g, NULL, 0, &(Params){.type = BATCH}), 801);
    EQUAL(cuGraphAddNode(&nodes[4], g, NULL, 0, &(Params){.type = KERNEL}), 400);

    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    uint64_t start = pumice_machine_now_ns(), base = free_now();
    OK(cuGraphLaunch(e, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 1000000);
    EQUAL(base - free_now(), 100 * MIB);
    OK(cuMemcpyDtoH_v2(&seen, p + 60, 4));
    EQUAL(seen, 7);
    OK(cuEventQuery(early));

    fill.fill.value = 9; /* in what runs, not in what it was made of */
    OK(cuGraphExecNodeSetParams(e, nodes[0], &fill));
    OK(cuGraphExecEventRecordNodeSetEvent(e, nodes[2], late));
    EQUAL(cuGraphExecEventRecordNodeSetEvent(e, nodes[1], late), 1);
    OK(cuGraphLaunch(e, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&seen, p, 4));
    EQUAL(seen, 9);
    OK(cuEventSynchronize(late));
    Params got;
    OK(cuGraphNodeGetParams(nodes[0], &got));
    EQUAL(got.type, FILL);
    EQUAL(got.fill.value, 7);
    OK(cuGraphNodeSetParams(nodes[0], &fill));
    OK(cuGraphNodeGetParams(nodes[0], &got));
    EQUAL(got.fill.value, 9);
    EQUAL(cuGraphNodeSetParams(nodes[0], &k), 1);
    drop_machine();
}

static int ended;
static void end(void *data)
{
    ended += *(int *)data;
}

static void an_object_lives_as_long_as_a_graph_or_anybody_wants_it(void)
{
    fresh_machine("virtual=1 memory_mib=8192");
    begin(0);
    CUgraph g, copy;
    CUgraphExec e;
    void *object;
    int one = 1;
    EQUAL(cuUserObjectCreate(&object, &one, end, 1, 0), 1);
    EQUAL(cuUserObjectCreate(&object, &one, NULL, 1, 1), 1);
    OK(cuUserObjectCreate(&object, &one, end, 2, 1));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, object, 1, 1)); /* one of the two moves */
    OK(cuGraphRetainUserObject(g, object, 3, 0));
    OK(cuGraphReleaseUserObject(g, object, 3));
    EQUAL(cuGraphReleaseUserObject(g, object, 2), 1);
    OK(cuUserObjectRetain(object, 2));
    OK(cuUserObjectRelease(object, 3));
    EQUAL(ended, 0); /* the graph's is left */
    OK(cuGraphClone(&copy, g));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphDestroy(g));
    OK(cuGraphDestroy(copy));
    EQUAL(ended, 0);
    OK(cuGraphExecDestroy(e));
    EQUAL(ended, 1);
    EQUAL(cuUserObjectRelease(object, 1), 1);
    drop_machine();
}

static int told(CUdeviceptr p, int attribute)
{
    int value;
    OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, p, 4096));
    return value;
}

static void advice_on_managed_memory_is_told_again(void)
{
    fresh_machine("virtual=1 memory_mib=8192");
    begin(0);
    enum { READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, PREFETCHED, PREFERRED_TYPE, HOST = -1, NOWHERE = -2 };
    CUdeviceptr p;
    int by[4];
    OK(cuMemAllocManaged(&p, 8192, 1));
    EQUAL(told(p, PREFERRED), NOWHERE);
    EQUAL(told(p, PREFERRED_TYPE), 0);
    OK(cuMemAdvise(p, 4096, 1, 0));
    OK(cuMemAdvise(p, 4096, 3, HOST));
    OK(cuMemAdvise(p, 4096, 5, 0));
    OK(cuMemAdvise(p, 4096, 5, HOST));
    OK(cuMemPrefetchAsync(p, 4096, 0, NULL));
    EQUAL(told(p, READ_MOSTLY), 1);
    EQUAL(told(p, PREFERRED), HOST);
    EQUAL(told(p, PREFERRED_TYPE), 2);
    EQUAL(told(p, PREFETCHED), 0);
    OK(cuMemRangeGetAttribute(by, sizeof by, ACCESSED_BY, p, 4096));
    CHECK(by[0] == 0 && by[1] == HOST && by[2] == NOWHERE && by[3] == NOWHERE);
    OK(cuMemAdvise(p, 4096, 2, 0));
    OK(cuMemAdvise(p, 4096, 4, 0));
    OK(cuMemAdvise(p, 4096, 6, HOST));
    EQUAL(told(p, READ_MOSTLY), 0);
    EQUAL(told(p, PREFERRED), NOWHERE);
    OK(cuMemRangeGetAttribute(by, sizeof by, ACCESSED_BY, p, 4096));
    CHECK(by[0] == 0 && by[1] == NOWHERE);
    EQUAL(cuMemAdvise(p, 4096, 3, 5), 101);
    drop_machine();
}

static void memory_is_unregistered_where_it_begins(void)
{
    fresh_machine("virtual=1 memory_mib=8192");
    begin(0);
    static char text[8192];
    OK(cuMemHostRegister_v2(text, sizeof text, 0));
    EQUAL(cuMemHostUnregister(text + 4096), 1);
    OK(cuMemHostUnregister(text));
    EQUAL(cuMemHostUnregister(text), 713);
    drop_machine();
}

CUresult cuGraphGetId(CUgraph, unsigned *);
CUresult cuGraphExecGetId(CUgraphExec, unsigned *);
CUresult cuGraphNodeGetLocalId(void *, unsigned *);
CUresult cuGraphNodeGetToolsId(void *, unsigned long long *);
CUresult cuGraphNodeGetContainingGraph(void *, CUgraph *);
CUresult cuGraphAddEmptyNode(void **, CUgraph, void *const *, size_t);
CUresult cuGraphDestroyNode(void *);

static void tools_tell_graphs_and_nodes_apart_by_number(void)
{
    fresh_machine("memory_mib=8192");
    begin(0);
    CUgraph one, other, seen;
    CUgraphExec exec;
    void *first, *second, *elsewhere;
    unsigned a, b, c;
    unsigned long long x, y;
    OK(cuGraphCreate(&one, 0));
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddEmptyNode(&first, one, NULL, 0));
    OK(cuGraphAddEmptyNode(&elsewhere, other, NULL, 0));
    OK(cuGraphInstantiateWithFlags(&exec, one, 0));
    OK(cuGraphGetId(one, &a));
    OK(cuGraphGetId(other, &b));
    OK(cuGraphExecGetId(exec, &c));
    CHECK(a && b && c && a != b && b != c && a != c);
    OK(cuGraphNodeGetToolsId(first, &x));
    OK(cuGraphNodeGetToolsId(elsewhere, &y));
    CHECK(x != y);
    OK(cuGraphNodeGetContainingGraph(elsewhere, &seen));
    CHECK(seen == other);
    OK(cuGraphNodeGetLocalId(first, &a));
    OK(cuGraphDestroyNode(first));
    OK(cuGraphAddEmptyNode(&second, one, NULL, 0));
    OK(cuGraphNodeGetLocalId(second, &b));
    CHECK(a != b);
    EQUAL(cuGraphNodeGetLocalId(first, &b), 1);
    drop_machine();
}

int main(void)
{
    apart(one_call_adds_nodes_of_every_kind);
    apart(an_object_lives_as_long_as_a_graph_or_anybody_wants_it);
    apart(advice_on_managed_memory_is_told_again);
    apart(memory_is_unregistered_where_it_begins);
    apart(tools_tell_graphs_and_nodes_apart_by_number);
    return 0;
}
