/* The nodes of a graph and their dependencies. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct node *next_of(struct node *n)
{
    return handle_get(K_NODE, n->next);
}

static CUresult list(CUgraph graph, CUgraphNode *out, size_t *count, bool roots)
{
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g || !count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = out ? *count : 0, found = 0;
    for (struct node *n = handle_get(K_NODE, g->first); n; n = next_of(n)) {
        if (roots && n->after_count)
            continue;
        if (found < room)
            out[found] = handle_of(K_NODE, n);
        found++;
    }
    for (size_t i = found; i < room; i++)
        out[i] = NULL;
    *count = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    ENTER(cuGraphGetNodes);
    return list(graph, out, count, false);
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    ENTER(cuGraphGetRootNodes);
    return list(graph, out, count, true);
}

static CUresult edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g || !count || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = from ? *count : 0, found = 0;
    for (struct node *n = handle_get(K_NODE, g->first); n; n = next_of(n))
        for (size_t i = 0; i < n->after_count; i++, found++)
            if (found < room) {
                from[found] = n->after[i];
                to[found] = handle_of(K_NODE, n);
            }
    *count = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    ENTER(cuGraphGetEdges);
    return edges(graph, from, to, count);
}

/* The later forms carry eight bytes of data with each edge; ours are all plain. */
static void plain(void *data, size_t count)
{
    if (data)
        memset(data, 0, 8 * count);
}

EXPORT CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *data, size_t *count)
{
    ENTER(cuGraphGetEdges_v2);
    CUresult rc = edges(graph, from, to, count);
    if (rc == CUDA_SUCCESS && from)
        plain(data, *count);
    return rc;
}

static CUresult before(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    struct node *n = handle_get(K_NODE, node);
    if (!n || !count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = out ? *count : 0;
    for (size_t i = 0; i < room && i < n->after_count; i++)
        out[i] = n->after[i];
    *count = n->after_count;
    return CUDA_SUCCESS;
}

static CUresult behind(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    struct node *of = handle_get(K_NODE, node);
    struct graph *g = of ? handle_get(K_GRAPH, of->graph) : NULL;
    if (!g || !count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = out ? *count : 0, found = 0;
    for (struct node *n = handle_get(K_NODE, g->first); n; n = next_of(n))
        for (size_t i = 0; i < n->after_count; i++)
            if (n->after[i] == node) {
                if (found < room)
                    out[found] = handle_of(K_NODE, n);
                found++;
            }
    *count = found;
    return CUDA_SUCCESS;
}

#define NEIGHBOURS(name, which) \
    EXPORT CUresult name(CUgraphNode node, CUgraphNode *out, size_t *count) \
    { \
        ENTER(name); \
        return which(node, out, count); \
    } \
    EXPORT CUresult name##_v2(CUgraphNode node, CUgraphNode *out, void *data, size_t *count) \
    { \
        ENTER(name##_v2); \
        CUresult rc = which(node, out, count); \
        if (rc == CUDA_SUCCESS && out) \
            plain(data, *count); \
        return rc; \
    }
NEIGHBOURS(cuGraphNodeGetDependencies, before)
NEIGHBOURS(cuGraphNodeGetDependentNodes, behind)

static CUresult connect(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    if (!handle_get(K_GRAPH, graph) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct node *a = handle_get(K_NODE, from[i]), *b = handle_get(K_NODE, to[i]);
        if (!a || !b || a == b || a->graph != graph || b->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        CUgraphNode *more = realloc(b->after, (b->after_count + 1) * sizeof *more);
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        b->after = more;
        b->after[b->after_count++] = from[i];
    }
    return CUDA_SUCCESS;
}

static CUresult disconnect(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    if (!handle_get(K_GRAPH, graph) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct node *b = handle_get(K_NODE, to[i]);
        if (!b || !node_forget(b, from[i]))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

#define CONNECTION(name, act) \
    EXPORT CUresult name(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) \
    { \
        ENTER(name); \
        return act(graph, from, to, count); \
    } \
    EXPORT CUresult name##_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *data, size_t count) \
    { \
        ENTER(name##_v2); \
        (void)data; \
        return act(graph, from, to, count); \
    }
CONNECTION(cuGraphAddDependencies, connect)
CONNECTION(cuGraphRemoveDependencies, disconnect)
