/* Graphs: nodes in the order they were made, with what comes before each. */
#include "graph.h"
#include "copy.h"

#include <stdlib.h>
#include <string.h>

/* ---- graphs and nodes ---- */

struct graph *graph_new(CUgraph *out)
{
    struct graph *g = handle_new(K_GRAPH);
    if (g) {
        g->number = graph_number();
        *out = handle_of(K_GRAPH, g);
    }
    return g;
}

static void node_end(CUgraphNode handle)
{
    struct node *n = handle_get(K_NODE, handle);
    if (!n || !handle_drop(K_NODE, handle))
        return;
    free(n->after);
    n->after = NULL;
    if (n->child)
        graph_end(n->child);
    for (unsigned i = 0; n->condition.bodies && i < n->condition.size; i++)
        graph_end(n->condition.bodies[i]);
    free(n->condition.bodies);
    n->condition.bodies = NULL;
}

void graph_end(CUgraph graph)
{
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g)
        return;
    for (CUgraphNode i = g->first, next; i; i = next) {
        struct node *n = handle_get(K_NODE, i);
        next = n ? n->next : NULL;
        node_end(i);
    }
    conditions_end(g);
    struct held *held = g->held;
    g->held = NULL;
    handle_drop(K_GRAPH, graph);
    held_end(&held);
}

static struct node *member(CUgraph graph, CUgraphNode node)
{
    struct node *n = handle_get(K_NODE, node);
    return n && n->graph == graph ? n : NULL;
}

/* The kinds of nodes that the graph behind a condition may have. */
static const bool in_a_body[N_CONDITION + 1] = {
    [N_KERNEL] = true, [N_EMPTY] = true, [N_GRAPH] = true, [N_MEMSET] = true, [N_MEMCPY] = true, [N_CONDITION] = true,
};

CUresult graph_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct node *like)
{
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || (count && !after))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!member(graph, after[i]))
            return CUDA_ERROR_INVALID_VALUE;
    if (g->body && !in_a_body[like->type])
        return CUDA_ERROR_NOT_SUPPORTED;
    struct node *n = handle_new(K_NODE);
    CUgraphNode *copy = n && count ? malloc(count * sizeof *copy) : NULL;
    if (!n || (count && !copy)) {
        if (n)
            handle_drop(K_NODE, handle_of(K_NODE, n));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy((char *)n + sizeof n->o, (const char *)like + sizeof n->o, sizeof *n - sizeof n->o);
    n->ns = moving_time(n);
    if (count)
        memcpy(copy, after, count * sizeof *copy);
    n->graph = graph;
    n->number = g->nodes_made++;
    n->next = NULL;
    n->after = copy;
    n->after_count = count;
    CUgraphNode handle = handle_of(K_NODE, n);
    struct node *last = handle_get(K_NODE, g->last);
    if (last)
        last->next = handle;
    else
        g->first = handle;
    g->last = handle;
    g->count++;
    struct graph *child = handle_get(K_GRAPH, n->child);
    if (child)
        child->parent = graph;
    *out = handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    ENTER(cuGraphCreate);
    if (!out || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_new(out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(cuGraphDestroy);
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g || g->parent)
        return CUDA_ERROR_INVALID_VALUE;
    graph_end(graph);
    return CUDA_SUCCESS;
}

bool node_forget(struct node *n, CUgraphNode before)
{
    for (size_t i = 0; i < n->after_count; i++)
        if (n->after[i] == before) {
            memmove(&n->after[i], &n->after[i + 1], (--n->after_count - i) * sizeof *n->after);
            return true;
        }
    return false;
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode node)
{
    ENTER(cuGraphDestroyNode);
    struct node *n = handle_get(K_NODE, node);
    struct graph *g = n ? handle_get(K_GRAPH, n->graph) : NULL;
    if (!g)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode before = NULL;
    for (CUgraphNode i = g->first; i && i != node; i = ((struct node *)handle_get(K_NODE, i))->next)
        before = i;
    for (struct node *i = handle_get(K_NODE, g->first); i; i = handle_get(K_NODE, i->next))
        node_forget(i, node);
    struct node *previous = handle_get(K_NODE, before);
    if (previous)
        previous->next = n->next;
    else
        g->first = n->next;
    if (g->last == node)
        g->last = before;
    g->count--;
    node_end(node);
    return CUDA_SUCCESS;
}

/* With the originals' dependencies for now, which the caller replaces. A condition cannot be cloned. */
static CUresult clone_node(CUgraph into, struct node *n)
{
    struct node like = *n;
    if (n->type == N_CONDITION)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult rc = n->child ? graph_clone(&like.child, n->child) : CUDA_SUCCESS;
    if (rc)
        return rc;
    if ((rc = graph_add(&n->twin, into, NULL, 0, &like))) {
        if (like.child)
            graph_end(like.child);
        return rc;
    }
    struct node *twin = handle_get(K_NODE, n->twin);
    twin->after = n->after_count ? calloc(n->after_count, sizeof *twin->after) : NULL;
    if (n->after_count && !twin->after)
        return CUDA_ERROR_OUT_OF_MEMORY;
    twin->after_count = n->after_count;
    return CUDA_SUCCESS;
}

CUresult graph_clone(CUgraph *out, CUgraph original)
{
    struct graph *from = handle_get(K_GRAPH, original);
    CUgraph copy;
    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph_new(&copy))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!held_copy(&((struct graph *)handle_get(K_GRAPH, copy))->held, from->held)) {
        graph_end(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (CUgraphNode i = from->first; i;) {
        struct node *n = handle_get(K_NODE, i);
        CUresult rc = clone_node(copy, n);
        if (rc) {
            graph_end(copy);
            return rc;
        }
        i = n->next;
    }
    for (struct node *n = handle_get(K_NODE, from->first); n; n = handle_get(K_NODE, n->next)) {
        struct node *twin = handle_get(K_NODE, n->twin);
        for (size_t i = 0; i < n->after_count; i++)
            twin->after[i] = ((struct node *)handle_get(K_NODE, n->after[i]))->twin;
    }
    *out = copy;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphClone(CUgraph *out, CUgraph original)
{
    ENTER(cuGraphClone);
    return out ? graph_clone(out, original) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone_graph)
{
    ENTER(cuGraphNodeFindInClone);
    struct node *n = handle_get(K_NODE, original);
    struct graph *from = n ? handle_get(K_GRAPH, n->graph) : NULL, *to = handle_get(K_GRAPH, clone_graph);
    if (!out || !from || !to)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode at = to->first;
    for (CUgraphNode i = from->first; i && at; i = ((struct node *)handle_get(K_NODE, i))->next) {
        if (i == original) {
            *out = at;
            return CUDA_SUCCESS;
        }
        at = ((struct node *)handle_get(K_NODE, at))->next;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- adding nodes of each kind ---- */

#define ADD_NODE(name, type_, parameter, usable, ...) \
    EXPORT CUresult name(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, parameter) \
    { \
        ENTER(name); \
        if (!(usable)) \
            return CUDA_ERROR_INVALID_VALUE; \
        return graph_add(out, graph, after, count, &(struct node){.type = type_, __VA_ARGS__}); \
    }
ADD_NODE(cuGraphAddHostNode, N_HOST, const CUDA_HOST_NODE_PARAMS *p, p && p->fn, .host = *p)
ADD_NODE(cuGraphAddEventRecordNode, N_RECORD, CUevent event, handle_get(K_EVENT, event), .event = event)
ADD_NODE(cuGraphAddEventWaitNode, N_WAIT, CUevent event, handle_get(K_EVENT, event), .event = event)
ADD_NODE(cuGraphAddMemFreeNode, N_FREE, CUdeviceptr address, address, .freed = address)

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count)
{
    ENTER(cuGraphAddEmptyNode);
    return graph_add(out, graph, after, count, &(struct node){.type = N_EMPTY});
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const CUDA_MEMCPY3D *p, CUcontext of)
{
    ENTER(cuGraphAddMemcpyNode);
    (void)of;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct node like = {.type = N_MEMCPY, .copy = *p};
    return graph_add(out, graph, after, count, &like);
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const CUDA_MEMSET_NODE_PARAMS *p, CUcontext of)
{
    ENTER(cuGraphAddMemsetNode);
    (void)of;
    return p ? graph_add(out, graph, after, count, &(struct node){.type = N_MEMSET, .memset = *p}) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child)
{
    ENTER(cuGraphAddChildGraphNode);
    struct node like = {.type = N_GRAPH};
    if (child == graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = graph_clone(&like.child, child);
    if (rc)
        return rc;
    rc = graph_add(out, graph, after, count, &like);
    if (rc)
        graph_end(like.child);
    return rc;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
    ENTER(cuGraphAddMemAllocNode);
    if (!p || p->poolProps.location.type != 1 || p->poolProps.location.id < 0 || p->poolProps.location.id >= cu.device_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = graph_memory_reserve(p, cu.devices[p->poolProps.location.id].card);
    return rc ? rc : graph_add(out, graph, after, count, &(struct node){.type = N_ALLOC, .alloc = *p});
}

CUresult node_set_kernel(struct node *n, const CUDA_KERNEL_NODE_PARAMS *p, unsigned card)
{
    const struct function *f = handle_get(K_FUNCTION, p->func);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
    if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || threads == 0 || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    n->type = N_KERNEL;
    n->ns = function_time(f, (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ, p->kernelParams, p->extra, card);
    n->kernel = *p;
    return CUDA_SUCCESS;
}

unsigned graph_card(void)
{
    struct context *context = context_current();
    return context ? context->card : cu.devices[0].card;
}

/* The second form of the parameters has a kernel and a context behind the first's end. */
struct kernel_params_v2 { CUDA_KERNEL_NODE_PARAMS v1; CUkernel kernel; CUcontext context; };

static CUresult add_kernel(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUDA_KERNEL_NODE_PARAMS p)
{
    struct node like = {0};
    CUresult rc = node_set_kernel(&like, &p, graph_card());
    return rc ? rc : graph_add(out, graph, after, count, &like);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS *p)
{
    ENTER(cuGraphAddKernelNode);
    return p ? add_kernel(out, graph, after, count, *p) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                        const struct kernel_params_v2 *p)
{
    ENTER(cuGraphAddKernelNode_v2);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS v1 = p->v1;
    if (!v1.func)
        v1.func = p->kernel;
    return add_kernel(out, graph, after, count, v1);
}

/* ---- parameters of nodes ---- */

#define PARAMS(base, type_, field, form) \
    EXPORT CUresult base##GetParams(CUgraphNode node, form *p) \
    { \
        ENTER(base##GetParams); \
        struct node *n = handle_get(K_NODE, node); \
        if (!p || !n || n->type != type_) \
            return CUDA_ERROR_INVALID_VALUE; \
        *p = n->field; \
        return CUDA_SUCCESS; \
    }
#define SET_PARAMS(base, type_, field, form) \
    EXPORT CUresult base##SetParams(CUgraphNode node, const form *p) \
    { \
        ENTER(base##SetParams); \
        struct node *n = handle_get(K_NODE, node); \
        if (!p || !n || n->type != type_) \
            return CUDA_ERROR_INVALID_VALUE; \
        n->field = *p; \
        n->ns = moving_time(n); \
        return CUDA_SUCCESS; \
    }
PARAMS(cuGraphKernelNode, N_KERNEL, kernel, CUDA_KERNEL_NODE_PARAMS)
PARAMS(cuGraphMemcpyNode, N_MEMCPY, copy, CUDA_MEMCPY3D)
SET_PARAMS(cuGraphMemcpyNode, N_MEMCPY, copy, CUDA_MEMCPY3D)
PARAMS(cuGraphMemsetNode, N_MEMSET, memset, CUDA_MEMSET_NODE_PARAMS)
SET_PARAMS(cuGraphMemsetNode, N_MEMSET, memset, CUDA_MEMSET_NODE_PARAMS)
PARAMS(cuGraphHostNode, N_HOST, host, CUDA_HOST_NODE_PARAMS)
SET_PARAMS(cuGraphHostNode, N_HOST, host, CUDA_HOST_NODE_PARAMS)
PARAMS(cuGraphMemAllocNode, N_ALLOC, alloc, CUDA_MEM_ALLOC_NODE_PARAMS)
PARAMS(cuGraphMemFreeNode, N_FREE, freed, CUdeviceptr)

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, struct kernel_params_v2 *p)
{
    ENTER(cuGraphKernelNodeGetParams_v2);
    struct node *n = handle_get(K_NODE, node);
    if (!p || !n || n->type != N_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    *p = (struct kernel_params_v2){n->kernel, NULL, NULL};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    ENTER(cuGraphKernelNodeSetParams);
    struct node *n = handle_get(K_NODE, node);
    if (!p || !n || n->type != N_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    return node_set_kernel(n, p, graph_card());
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const struct kernel_params_v2 *p)
{
    return cuGraphKernelNodeSetParams(node, p ? &p->v1 : NULL);
}

#define EVENT_OF(base, type_) \
    EXPORT CUresult base##GetEvent(CUgraphNode node, CUevent *out) \
    { \
        ENTER(base##GetEvent); \
        struct node *n = handle_get(K_NODE, node); \
        if (!out || !n || n->type != type_) \
            return CUDA_ERROR_INVALID_VALUE; \
        *out = n->event; \
        return CUDA_SUCCESS; \
    } \
    EXPORT CUresult base##SetEvent(CUgraphNode node, CUevent event) \
    { \
        ENTER(base##SetEvent); \
        struct node *n = handle_get(K_NODE, node); \
        if (!n || n->type != type_ || !handle_get(K_EVENT, event)) \
            return CUDA_ERROR_INVALID_VALUE; \
        n->event = event; \
        return CUDA_SUCCESS; \
    }
EVENT_OF(cuGraphEventRecordNode, N_RECORD)
EVENT_OF(cuGraphEventWaitNode, N_WAIT)

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
    ENTER(cuGraphChildGraphNodeGetGraph);
    struct node *n = handle_get(K_NODE, node);
    if (!out || !n || n->type != N_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *out = n->child;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    ENTER(cuGraphNodeGetType);
    struct node *n = handle_get(K_NODE, node);
    if (!type || !n)
        return CUDA_ERROR_INVALID_VALUE;
    *type = n->type;
    return CUDA_SUCCESS;
}

CUresult graph_do_copy(const struct node *n)
{
    return n->type == N_MEMCPY ? copy_box(&n->copy)
                               : fill_box(n->memset.dst, n->memset.pitch, n->memset.value, n->memset.elementSize, n->memset.width,
                                          n->memset.height);
}
