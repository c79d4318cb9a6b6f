#include "services/graph_memory.h"

#include "services/guest.h"
#include "services/pools.h"

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

CUresult graph_instantiated(const struct real *real, CUresult rc, const CUgraphExec *exec, CUgraph graph)
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

int graph_begin(CUgraphExec exec, bool *fits)
{
    struct record record;
    *fits = true;
    if (!guest_serves() || !records_find(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record))
        return -1;
    *fits = pools_graph_begins(record.device, record.bytes, record.references != pools_graph_generation());
    return record.device;
}

void graph_end(CUgraphExec exec, int device, CUresult rc)
{
    struct record record;
    if (rc == CUDA_SUCCESS && records_find(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record)) {
        record.references = pools_graph_generation(); /* its memory is there from now on */
        records_insert(&record);
    }
    pools_graph_began(device);
}

void graph_forget(CUgraphExec exec)
{
    struct record record;
    records_remove(RECORD_EXEC, (uint64_t)(uintptr_t)exec, &record);
}
