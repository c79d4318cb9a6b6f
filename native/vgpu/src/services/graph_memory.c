#include "services/graph_memory.h"

#include "services/blocks.h"
#include "services/process_state.h"
#include "services/pools.h"

#include <stdlib.h>

enum { DEPTH_MAX = 8 };

/* Bytes by device. */
struct needs {
    uint64_t bytes[REGION_DEVICES];
};

static uint64_t key_of(CUgraphExec exec, int device)
{
    return (uint64_t)(uintptr_t)exec * REGION_DEVICES + (uint64_t)device;
}

/* A node's memory is where its pool properties say, whatever device is current. */
static void add_node(CUgraphNode node, struct needs *needs)
{
    struct mem_alloc_node wanted;
    if (CUDA(cuGraphMemAllocNodeGetParams(node, &wanted)) != CUDA_SUCCESS)
        return;
    int device = process_location(&wanted.pool.location);
    if (device >= 0 && __builtin_add_overflow(needs->bytes[device], blocks_bytes(wanted.bytes), &needs->bytes[device]))
        needs->bytes[device] = INT64_MAX;
}

/* All allocation nodes, child graphs included: what one launch takes at most. */
static void add_graph(CUgraph graph, int depth, struct needs *needs)
{
    size_t count = 0;
    if (depth == DEPTH_MAX || CUDA(cuGraphGetNodes(graph, NULL, &count)) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes == NULL || CUDA(cuGraphGetNodes(graph, nodes, &count)) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        int type = -1;
        CUgraph child;
        if (CUDA(cuGraphNodeGetType(nodes[i], &type)) != CUDA_SUCCESS)
            continue;
        if (type == GRAPH_NODE_MEM_ALLOC)
            add_node(nodes[i], needs);
        else if (type == GRAPH_NODE_CHILD && CUDA(cuGraphChildGraphNodeGetGraph(nodes[i], &child)) == CUDA_SUCCESS)
            add_graph(child, depth + 1, needs);
    }
    free(nodes);
}

void graph_instantiated(const CUgraphExec *exec, CUgraph graph)
{
    if (exec == NULL)
        return;
    struct needs needs = {{0}};
    add_graph(graph, 0, &needs);
    for (int device = 0; device < REGION_DEVICES; device++) {
        struct record record = {.key = key_of(*exec, device), .bytes = needs.bytes[device], .device = (int16_t)device, .kind = RECORD_EXEC};
        if (record.bytes > 0)
            records_insert(&record);
    }
}

/* Whether the graph may take memory of the device, and how much. */
static bool needs_of(CUgraphExec exec, int device, struct record *record)
{
    return process_state.ordinal_of[device] >= 0 && records_find(RECORD_EXEC, key_of(exec, device), record);
}

uint32_t graph_begin(CUgraphExec exec, bool *fits)
{
    struct record record;
    uint32_t devices = 0;
    *fits = true;
    if (!process_serves() || process_state.device_count == 0)
        return 0;
    for (int device = 0; device < REGION_DEVICES && *fits; device++) {
        if (!needs_of(exec, device, &record))
            continue;
        *fits = pools_graph_begins(device, record.bytes, record.references != pools_graph_generation());
        devices |= 1u << device;
    }
    for (int device = 0; device < REGION_DEVICES && !*fits; device++)
        if (devices >> device & 1)
            pools_graph_began(device);
    return devices;
}

CUresult graph_end(CUgraphExec exec, uint32_t devices, CUresult rc)
{
    struct record record;
    for (int device = 0; device < REGION_DEVICES; device++) {
        if ((devices >> device & 1) == 0)
            continue;
        if (rc == CUDA_SUCCESS && needs_of(exec, device, &record)) {
            record.references = pools_graph_generation(); /* its memory is there from now on */
            records_insert(&record);
        }
        pools_graph_began(device);
    }
    return rc;
}

void graph_forget(CUgraphExec exec)
{
    struct record record;
    for (int device = 0; device < REGION_DEVICES; device++)
        records_remove(RECORD_EXEC, key_of(exec, device), &record);
}
