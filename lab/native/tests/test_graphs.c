/* Captures and graphs, cooperative launches, and copies behind a host function. */
#include "check.h"

#define MIB (1ull << 20)

CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphDestroy(CUgraph);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemsetD2D32Async(CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphGetNodes(CUgraph, void **, size_t *);
CUresult cuGraphGetRootNodes(CUgraph, void **, size_t *);
CUresult cuGraphGetEdges(CUgraph, void **, void **, size_t *);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);

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
    void *roots[3] = {NULL, &p, &p};
    size_t count = 3;
    OK(cuGraphGetRootNodes(g, roots, &count));
    EQUAL(count, 1);
    CHECK(roots[0] && !roots[1] && !roots[2]); /* what is left of the room is emptied (cuGraphGetRootNodes of the driver's manual) */
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

CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);

/* PyTorch's cudaMallocAsync backend orders a free behind other streams by events that it ends with the capture. */
static void an_event_of_a_capture_is_no_node_and_may_end_before_the_graph_runs(void)
{
    fresh_machine("virtual=1 memory_mib=8192 context_mib=300");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000000\n", "k");
    CUstream s, other;
    CUgraph g;
    CUgraphExec e;
    CUevent inside, outside;
    size_t nodes = 0;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuEventCreate(&inside, 2));
    OK(cuEventCreate(&outside, 2));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(run(f, s));
    OK(cuEventRecord(inside, s));
    OK(cuStreamWaitEvent(other, inside, 0));
    OK(run(f, other));
    OK(cuEventRecord(inside, other));
    OK(cuStreamWaitEvent(s, inside, 0));
    OK(cuEventRecordWithFlags(outside, s, 1)); /* this one is recorded by the graph when it runs */
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphGetNodes(g, NULL, &nodes));
    EQUAL(nodes, 3);
    OK(cuEventDestroy_v2(inside));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphLaunch(e, s));
    EQUAL(cuEventQuery(outside), 600);
    OK(cuStreamSynchronize(s));
    OK(cuEventQuery(outside));
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
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

/* A thousand bytes in a microsecond: a million in a millisecond, by whatever call they are moved. */
static void copies_and_fills_take_the_time_of_the_cards_bandwidth(void)
{
    fresh_machine("virtual=1 copy=1000");
    begin(0);
    CUdeviceptr to, from;
    CUstream stream;
    OK(cuMemAlloc_v2(&to, 2000000));
    OK(cuMemAlloc_v2(&from, 2000000));
    OK(cuStreamCreate(&stream, 1));
    uint64_t start = pumice_machine_now_ns();
    OK(cuMemcpyDtoDAsync_v2(to, from, 1000000, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pumice_machine_now_ns() - start, 1000000);
    OK(cuMemsetD8Async(to, 7, 2000000, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pumice_machine_now_ns() - start, 3000000);
    OK(cuMemsetD2D32Async(to, 4000, 7, 500, 500, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pumice_machine_now_ns() - start, 4000000);
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuMemsetD8Async(to, 7, 1000000, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pumice_machine_now_ns() - start, 5000000);
    drop_machine();
}

int main(void)
{
    apart(graphs_run_as_long_as_their_kernels);
    apart(an_event_of_a_capture_is_no_node_and_may_end_before_the_graph_runs);
    apart(memory_of_a_graph_can_be_freed_outside_of_it);
    apart(a_forbidden_call_spoils_the_capture);
    apart(cooperative_launches_must_fit_the_card);
    apart(copies_wait_for_the_host_function_in_front);
    apart(copies_and_fills_take_the_time_of_the_cards_bandwidth);
    return 0;
}
