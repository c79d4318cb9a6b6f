/* A graph as text for Graphviz: nodes by kind, and what comes before what. */
#include "graph.h"

#include <stdio.h>

static const char *const kinds[N_CONDITION + 1] = {
    [N_KERNEL] = "KERNEL", [N_MEMCPY] = "MEMCPY", [N_MEMSET] = "MEMSET", [N_HOST] = "HOST", [N_GRAPH] = "GRAPH",
    [N_EMPTY] = "EMPTY", [N_WAIT] = "EVENT_WAIT", [N_RECORD] = "EVENT_RECORD", [N_ALLOC] = "MEM_ALLOC", [N_FREE] = "MEM_FREE",
    [N_CONDITION] = "CONDITIONAL",
};

static void print_graph(FILE *file, CUgraph graph)
{
    const struct graph *g = handle_get(K_GRAPH, graph);
    fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", g->number, g->number);
    for (CUgraphNode i = g->first; i;) {
        const struct node *n = handle_get(K_NODE, i);
        fprintf(file, "\"%p\" [label=\"%u: %s\"];\n", i, n->number, kinds[n->type]);
        for (size_t j = 0; j < n->after_count; j++)
            fprintf(file, "\"%p\" -> \"%p\";\n", n->after[j], i);
        if (n->child)
            print_graph(file, n->child);
        for (unsigned j = 0; n->condition.bodies && j < n->condition.size; j++)
            print_graph(file, n->condition.bodies[j]);
        i = n->next;
    }
    fputs("}\n", file);
}

EXPORT CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    ENTER(cuGraphDebugDotPrint);
    (void)flags; /* they add details to nodes */
    if (!handle_get(K_GRAPH, graph) || !path)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "w");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fputs("digraph dot {\n", file);
    print_graph(file, graph);
    fputs("}\n", file);
    return fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
