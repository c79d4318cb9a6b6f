/* Numbers by which tools know graphs and nodes. */
#include "graph.h"

unsigned graph_number(void)
{
    static _Atomic unsigned last;
    return atomic_fetch_add(&last, 1) + 1;
}

static const struct graph *graph_of(const struct node *n)
{
    return n ? handle_get(K_GRAPH, n->graph) : NULL;
}

#define NUMBER(name, handle, type, kind, object, number) \
    EXPORT CUresult name(handle asked, type *out) \
    { \
        ENTER(name); \
        const object *it = handle_get(kind, asked); \
        if (!it || !out) \
            return CUDA_ERROR_INVALID_VALUE; \
        *out = (number); \
        return CUDA_SUCCESS; \
    }
NUMBER(cuGraphGetId, CUgraph, unsigned int, K_GRAPH, struct graph, it->number)
NUMBER(cuGraphExecGetId, CUgraphExec, unsigned int, K_EXEC, struct graph_exec, it->number)
NUMBER(cuGraphNodeGetLocalId, CUgraphNode, unsigned int, K_NODE, struct node, it->number)
NUMBER(cuGraphNodeGetToolsId, CUgraphNode, unsigned long long, K_NODE, struct node,
       (unsigned long long)(graph_of(it) ? graph_of(it)->number : 0) << 32 | it->number)
NUMBER(cuGraphNodeGetContainingGraph, CUgraphNode, CUgraph, K_NODE, struct node, it->graph)
