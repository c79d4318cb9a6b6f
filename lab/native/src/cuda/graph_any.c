/* Nodes of any kind by one call, their parameters in a union (cuda.h, CUgraphNodeParams). */
#include "graph.h"

#include <string.h>

struct node_params {
    int type, reserved[3];
    union {
        struct { CUDA_KERNEL_NODE_PARAMS v1; CUkernel kernel; CUcontext context; } kernel;
        struct { int flags, reserved; CUcontext context; CUDA_MEMCPY3D copy; } memcpy;
        struct { CUDA_MEMSET_NODE_PARAMS v1; CUcontext context; } memset;
        CUDA_HOST_NODE_PARAMS host;
        struct { CUgraph graph; int ownership; } child;
        CUevent event;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr freed;
        struct condition_params condition;
        char bytes[232];
    };
    long long reserved2;
};
enum { OWNED_CLONE = 0, OWNED_MOVE = 1, OWNED_INVALID = -1 };

/* What the parameters say of a node, but for child graphs and memory, which are made and not set. */
static CUresult describe(struct node *n, const struct node_params *p)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    n->type = p->type;
    switch (p->type) {
    case N_KERNEL:
        kernel = p->kernel.v1;
        kernel.func = kernel.func ? kernel.func : p->kernel.kernel;
        return node_set_kernel(n, &kernel, graph_card());
    case N_MEMCPY:
        n->copy = p->memcpy.copy;
        n->ns = moving_time(n);
        return CUDA_SUCCESS;
    case N_MEMSET:
        n->memset = p->memset.v1;
        n->ns = moving_time(n);
        return CUDA_SUCCESS;
    case N_HOST:
        n->host = p->host;
        return n->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case N_WAIT:
    case N_RECORD:
        n->event = p->event;
        return handle_get(K_EVENT, n->event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case N_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* semaphores, batches */
    }
}

/* The graph itself becomes the node's, with memory and conditions, and is nobody else's from then on. */
static CUresult move_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child)
{
    const struct graph *c = handle_get(K_GRAPH, child);
    if (!c || c->parent || child == graph)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_add(out, graph, after, count, &(struct node){.type = N_GRAPH, .child = child});
}

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, struct node_params *p)
{
    struct node like = {0};
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    switch (p->type) {
    case N_GRAPH:
        return p->child.ownership == OWNED_CLONE  ? cuGraphAddChildGraphNode(out, graph, after, count, p->child.graph)
               : p->child.ownership == OWNED_MOVE ? move_child(out, graph, after, count, p->child.graph)
                                                  : CUDA_ERROR_INVALID_VALUE;
    case N_ALLOC:
        return cuGraphAddMemAllocNode(out, graph, after, count, &p->alloc);
    case N_FREE:
        return cuGraphAddMemFreeNode(out, graph, after, count, p->freed);
    case N_CONDITION:
        return condition_add(out, graph, after, count, &p->condition);
    default:
        break;
    }
    CUresult rc = describe(&like, p);
    return rc ? rc : graph_add(out, graph, after, count, &like);
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, struct node_params *p)
{
    ENTER(cuGraphAddNode);
    return add(out, graph, after, count, p);
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
                                  struct node_params *p)
{
    ENTER(cuGraphAddNode_v2);
    (void)edges; /* what an edge says beyond order has no part in running */
    return add(out, graph, after, count, p);
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, const struct node_params *p)
{
    ENTER(cuGraphNodeSetParams);
    struct node *n = handle_get(K_NODE, node);
    return n && p && p->type == n->type ? describe(n, p) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, const struct node_params *p)
{
    ENTER(cuGraphExecNodeSetParams);
    struct graph_exec *e;
    struct step *s = p ? step_of(exec, node, p->type, &e) : NULL;
    struct node like = {0};
    CUresult rc = s ? describe(&like, p) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    if (s->type == N_KERNEL)
        e->ns += like.ns - s->ns;
    s->ns = like.ns;
    s->copy = like.copy;
    s->memset = like.memset;
    s->host = like.host;
    s->event = like.event;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetParams(CUgraphNode node, struct node_params *p)
{
    ENTER(cuGraphNodeGetParams);
    const struct node *n = handle_get(K_NODE, node);
    if (!n || !p)
        return CUDA_ERROR_INVALID_VALUE;
    memset(p, 0, sizeof *p);
    p->type = n->type;
    switch (n->type) {
    case N_KERNEL: p->kernel.v1 = n->kernel; break;
    case N_MEMCPY: p->memcpy.copy = n->copy; break;
    case N_MEMSET: p->memset.v1 = n->memset; break;
    case N_HOST: p->host = n->host; break;
    case N_GRAPH: p->child.graph = n->child, p->child.ownership = OWNED_INVALID; break;
    case N_CONDITION: p->condition = n->condition; break;
    case N_WAIT: case N_RECORD: p->event = n->event; break;
    case N_ALLOC: p->alloc = n->alloc; break;
    case N_FREE: p->freed = n->freed; break;
    default: break;
    }
    return CUDA_SUCCESS;
}
