/* Instantiated graphs: a list of steps. A run of kernels is one piece of work of their times' sum. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- flattening ---- */

static CUresult flatten(struct graph_exec *e, CUgraph graph)
{
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!g)
        return CUDA_ERROR_INVALID_VALUE;
    if (!held_copy(&e->held, g->held))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUgraphNode i = g->first; i;) {
        struct node *n = handle_get(K_NODE, i);
        CUgraph within = n->child;
        CUresult rc = n->type == N_CONDITION ? condition_taken(&n->condition, &within) : CUDA_SUCCESS;
        if (rc == CUDA_SUCCESS && within)
            rc = flatten(e, within);
        if (rc)
            return rc;
        if (n->type != N_GRAPH && n->type != N_CONDITION && n->type != N_EMPTY) {
            struct step *more = realloc(e->steps, (e->count + 1) * sizeof *more);
            if (!more)
                return CUDA_ERROR_OUT_OF_MEMORY;
            e->steps = more;
            struct step *s = &more[e->count++];
            *s = (struct step){.type = n->type, .ns = n->ns, .host = n->host, .memset = n->memset, .copy = n->copy,
                               .event = n->event, .node = i, .address = n->type == N_ALLOC ? n->alloc.dptr : n->freed};
            if (n->type == N_KERNEL) {
                e->kernels++;
                e->ns += n->ns;
            }
        }
        i = n->next;
    }
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    if (!out || flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    struct context *context = context_current();
    struct graph_exec *e = handle_new(K_EXEC);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->number = graph_number();
    e->flags = (unsigned)flags;
    e->context = context ? context_current_handle() : NULL;
    CUresult rc = flatten(e, graph);
    if (rc) {
        free(e->steps);
        held_end(&e->held);
        handle_drop(K_EXEC, handle_of(K_EXEC, e));
        return rc;
    }
    *out = handle_of(K_EXEC, e);
    return CUDA_SUCCESS;
}

/* Up to 11 the call had places for an error node and a log. */
EXPORT CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    ENTER(cuGraphInstantiate);
    (void)error;
    if (log && size)
        *log = 0;
    return instantiate(out, graph, 0);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    ENTER(cuGraphInstantiate_v2);
    (void)error;
    if (log && size)
        *log = 0;
    return instantiate(out, graph, 0);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    ENTER(cuGraphInstantiateWithFlags);
    return instantiate(out, graph, flags);
}

struct instantiate_params { unsigned long long flags; CUstream upload; CUgraphNode error; int result; };

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, struct instantiate_params *p)
{
    ENTER(cuGraphInstantiateWithParams);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = instantiate(out, graph, p->flags);
    p->error = NULL;
    p->result = rc ? 1 : 0;
    return rc;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER(cuGraphExecDestroy);
    struct graph_exec *e = handle_get(K_EXEC, exec);
    struct held *held = e ? e->held : NULL;
    if (!e || !handle_drop(K_EXEC, exec))
        return CUDA_ERROR_INVALID_VALUE;
    free(e->steps);
    e->steps = NULL;
    held_end(&held);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec exec, unsigned long long *flags)
{
    ENTER(cuGraphExecGetFlags);
    struct graph_exec *e = handle_get(K_EXEC, exec);
    if (!e || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = e->flags;
    return CUDA_SUCCESS;
}

/* ---- updating ---- */

/* The same kinds of steps in the same order, or nothing changes. */
static CUresult update(CUgraphExec exec, CUgraph graph, int *result)
{
    struct graph_exec *e = handle_get(K_EXEC, exec), trial = {0};
    if (!e || !handle_get(K_GRAPH, graph))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = flatten(&trial, graph);
    bool same = rc == CUDA_SUCCESS && trial.count == e->count;
    for (size_t i = 0; same && i < trial.count; i++)
        same = trial.steps[i].type == e->steps[i].type;
    if (!same) {
        free(trial.steps);
        held_end(&trial.held);
        *result = 2; /* topology changed */
        return rc ? rc : 910;
    }
    free(e->steps);
    held_end(&e->held);
    e->held = trial.held;
    e->steps = trial.steps;
    e->ns = trial.ns;
    e->kernels = trial.kernels;
    *result = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, int *result)
{
    ENTER(cuGraphExecUpdate);
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (error)
        *error = NULL;
    return update(exec, graph, result);
}

struct update_result { int result; CUgraphNode error, error_from; };

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, struct update_result *out)
{
    ENTER(cuGraphExecUpdate_v2);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct update_result){0};
    return update(exec, graph, &out->result);
}

struct step *step_of(CUgraphExec exec, CUgraphNode node, int type, struct graph_exec **out)
{
    *out = handle_get(K_EXEC, exec);
    for (size_t i = 0; *out && i < (*out)->count; i++)
        if ((*out)->steps[i].node == node && (*out)->steps[i].type == type)
            return &(*out)->steps[i];
    return NULL;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    ENTER(cuGraphExecKernelNodeSetParams);
    struct graph_exec *e;
    struct step *s = step_of(exec, node, N_KERNEL, &e);
    struct node trial = {0};
    if (!s || !p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = node_set_kernel(&trial, p, graph_card());
    if (rc == CUDA_SUCCESS) {
        e->ns += trial.ns - s->ns;
        s->ns = trial.ns;
    }
    return rc;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    return cuGraphExecKernelNodeSetParams(exec, node, p);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext of)
{
    ENTER(cuGraphExecMemcpyNodeSetParams);
    (void)of;
    struct graph_exec *e;
    struct step *s = step_of(exec, node, N_MEMCPY, &e);
    if (!s || !p)
        return CUDA_ERROR_INVALID_VALUE;
    s->copy = *p;
    s->ns = moving_time(&(struct node){.type = N_MEMCPY, .copy = *p});
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext of)
{
    ENTER(cuGraphExecMemsetNodeSetParams);
    (void)of;
    struct graph_exec *e;
    struct step *s = step_of(exec, node, N_MEMSET, &e);
    if (!s || !p)
        return CUDA_ERROR_INVALID_VALUE;
    s->memset = *p;
    s->ns = moving_time(&(struct node){.type = N_MEMSET, .memset = *p});
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
    ENTER(cuGraphExecHostNodeSetParams);
    struct graph_exec *e;
    struct step *s = step_of(exec, node, N_HOST, &e);
    if (!s || !p || !p->fn)
        return CUDA_ERROR_INVALID_VALUE;
    s->host = *p;
    return CUDA_SUCCESS;
}

#define EXEC_EVENT(name, type) \
    EXPORT CUresult name(CUgraphExec exec, CUgraphNode node, CUevent event) \
    { \
        ENTER(name); \
        struct graph_exec *e; \
        struct step *s = step_of(exec, node, type, &e); \
        if (!s || !handle_get(K_EVENT, event)) \
            return CUDA_ERROR_INVALID_VALUE; \
        s->event = event; \
        return CUDA_SUCCESS; \
    }
EXEC_EVENT(cuGraphExecEventRecordNodeSetEvent, N_RECORD)
EXEC_EVENT(cuGraphExecEventWaitNodeSetEvent, N_WAIT)

/* ---- running ---- */

static CUresult run_step(const struct step *step, struct stream *s, struct context *context)
{
    struct node as_node;
    switch (step->type) {
    case N_KERNEL:
        stream_submit(s, context->card, step->ns);
        return CUDA_SUCCESS;
    case N_MEMCPY:
    case N_MEMSET:
        as_node.type = step->type;
        as_node.copy = step->copy;
        as_node.memset = step->memset;
        stream_submit(s, context->card, step->ns);
        return graph_do_copy(&as_node);
    case N_HOST:
        return stream_enqueue_host(s, step->host.fn, step->host.userData);
    case N_RECORD:
        return event_record_in(step->event, s, context);
    case N_ALLOC:
        return graph_memory_use(step->address);
    case N_FREE:
        graph_memory_unuse(step->address);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTER_CONTEXT(cuGraphLaunch, context);
    struct graph_exec *e = handle_get(K_EXEC, exec);
    struct stream *s = stream_of(stream, context);
    if (!e || !s)
        return e ? stream_missing(stream) : CUDA_ERROR_INVALID_VALUE;
    if (capture_active(s)) { /* as a child graph: here one piece of the same length */
        return capture_node(s, &(struct node){.type = N_KERNEL, .ns = e->ns});
    }
    for (size_t i = 0; i < e->count; i++) /* memory first: a graph that does not fit does not run */
        if (e->steps[i].type == N_ALLOC && graph_memory_use(e->steps[i].address) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
    ADD(&account_at(context->card, cu.slot)->launches, e->kernels);
    if (e->kernels == e->count) {
        stream_submit(s, context->card, e->ns);
        return CUDA_SUCCESS;
    }
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < e->count && rc == CUDA_SUCCESS; i++)
        rc = run_step(&e->steps[i], s, context);
    return rc;
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    ENTER_CONTEXT(cuGraphUpload, context);
    struct graph_exec *e = handle_get(K_EXEC, exec);
    if (!e || !stream_of(stream, context))
        return e ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < e->count; i++)
        if (e->steps[i].type == N_ALLOC && graph_memory_use(e->steps[i].address) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}
