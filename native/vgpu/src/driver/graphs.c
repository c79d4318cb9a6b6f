/*
 * Graphs: a launch costs the GPU time of the whole graph, and a graph with allocation nodes takes memory when it is uploaded
 * or first launched. How much is read from its nodes when it is instantiated.
 */
#include "driver/launching.h"
#include "driver/pools.h"

#include <stdlib.h>

enum { DEPTH_MAX = 8 };
#define GRAPH_GRAIN (2ull << 20)

/* Bytes of all allocation nodes, child graphs included: what one launch takes at most. */
static uint64_t bytes_of_graph(const struct real *real, CUgraph graph, int depth)
{
    size_t count = 0;
    if (depth == DEPTH_MAX || real->cuGraphGetNodes == NULL || real->cuGraphNodeGetType == NULL ||
        INSIDE(real->cuGraphGetNodes(graph, NULL, &count)) != CUDA_SUCCESS || count == 0)
        return 0;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    uint64_t sum = 0;
    if (nodes == NULL || INSIDE(real->cuGraphGetNodes(graph, nodes, &count)) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        int type = -1;
        struct mem_alloc_node node;
        CUgraph child;
        if (INSIDE(real->cuGraphNodeGetType(nodes[i], &type)) != CUDA_SUCCESS)
            continue;
        if (type == GRAPH_NODE_MEM_ALLOC && real->cuGraphMemAllocNodeGetParams != NULL &&
            INSIDE(real->cuGraphMemAllocNodeGetParams(nodes[i], &node)) == CUDA_SUCCESS &&
            node.bytes < UINT64_MAX - GRAPH_GRAIN)
            sum += (node.bytes + GRAPH_GRAIN - 1) / GRAPH_GRAIN * GRAPH_GRAIN;
        else if (type == GRAPH_NODE_CHILD && real->cuGraphChildGraphNodeGetGraph != NULL &&
                 INSIDE(real->cuGraphChildGraphNodeGetGraph(nodes[i], &child)) == CUDA_SUCCESS)
            sum += bytes_of_graph(real, child, depth + 1);
    }
    free(nodes);
    return sum;
}

static CUresult instantiated(const struct real *real, CUresult rc, const CUgraphExec *exec, CUgraph graph)
{
    if (rc != CUDA_SUCCESS || exec == NULL || !guest_serves())
        return rc;
    uint64_t bytes = bytes_of_graph(real, graph, 0);
    int device = bytes == 0 ? -1 : guest_current_device(real);
    if (device >= 0) {
        struct record record = {.key = (uint64_t)(uintptr_t)*exec, .bytes = bytes, .device = (int16_t)device, .kind = RECORD_EXEC};
        records_insert(&record);
    }
    return rc;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphInstantiate(exec, graph, node, log, bytes)), exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphInstantiate_v2(exec, graph, node, log, bytes)), exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphInstantiateWithFlags(exec, graph, flags)), exec, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphInstantiateWithParams(exec, graph, parameters)), exec, graph);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphInstantiateWithParams_ptsz(exec, graph, parameters)), exec, graph);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphExecUpdate(exec, graph, node, result)), &exec, graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result)
{
    const struct real *real = real_cuda();
    return instantiated(real, INSIDE(real->cuGraphExecUpdate_v2(exec, graph, result)), &exec, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    const struct real *real = real_cuda();
    struct record record;
    if (guest_serves())
        records_remove(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record);
    return INSIDE(real->cuGraphExecDestroy(exec));
}

/* Books the memory that the graph may take; the device, or -1 when it takes none. *fits is false when it must not run. */
static int begin_memory(CUgraphExec exec, bool *fits)
{
    struct record record;
    *fits = true;
    if (!guest_serves() || !records_find(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record))
        return -1;
    *fits = pools_graph_begins(record.device, record.bytes, record.references != pools_graph_generation());
    return record.device;
}

static void end_memory(CUgraphExec exec, int device, CUresult rc)
{
    struct record record;
    if (rc == CUDA_SUCCESS && records_find(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record)) {
        record.references = pools_graph_generation(); /* its memory is there from now on */
        records_insert(&record);
    }
    pools_graph_began(device);
}

typedef CUresult (*graph_call)(CUgraphExec exec, CUstream stream);

static CUresult upload(graph_call call, CUgraphExec exec, CUstream stream)
{
    bool fits;
    int device = begin_memory(exec, &fits);
    if (!fits)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(call(exec, stream));
    if (device >= 0)
        end_memory(exec, device, rc);
    return rc;
}

static CUresult run(graph_call call, CUgraphExec exec, CUstream stream, bool per_thread)
{
    bool fits;
    int device = begin_memory(exec, &fits);
    if (!fits)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct shape shape = {.function = exec, .kind = SHAPE_GRAPH};
    struct launch launch;
    bool charged = launch_begin(&launch, &shape, stream, per_thread);
    CUresult rc = INSIDE(call(exec, stream));
    if (charged)
        rc = launch_done(&launch, rc);
    if (device >= 0)
        end_memory(exec, device, rc);
    return rc;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(real_cuda()->cuGraphUpload, exec, stream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(real_cuda()->cuGraphUpload_ptsz, exec, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return run(real_cuda()->cuGraphLaunch, exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return run(real_cuda()->cuGraphLaunch_ptsz, exec, stream, true);
}
