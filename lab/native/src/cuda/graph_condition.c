/* Conditions of graphs, and the graphs behind them.
 *
 * On a card a kernel sets a condition. Kernels compute nothing here, so a condition is worth what it begins with: the body of an "if"
 * or a "switch" that fits runs, and that of a "while" once instead of for ever, for nobody could end it. */
#include "graph.h"

#include <stdlib.h>

enum { IF = 0, WHILE = 1, SWITCH = 2 };
#define ASSIGN_DEFAULT 1u
#define BODIES 65536u /* of one switch; beyond this a count is taken for garbage */

EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph graph, CUcontext of, unsigned int initial,
                                               unsigned int flags)
{
    ENTER(cuGraphConditionalHandleCreate);
    struct graph *g = handle_get(K_GRAPH, graph);
    if (!out || !g || flags & ~ASSIGN_DEFAULT || (of && !context_of(of)))
        return CUDA_ERROR_INVALID_VALUE;
    struct context *context = of ? context_of(of) : context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    struct condition *c = handle_new(K_CONDITION);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->graph = graph;
    c->context = of ? of : context_current_handle();
    c->initial = flags & ASSIGN_DEFAULT ? initial : 0;
    c->next = g->conditions;
    *out = g->conditions = (CUgraphConditionalHandle)handle_of(K_CONDITION, c);
    return CUDA_SUCCESS;
}

static struct condition *condition_of(CUgraphConditionalHandle handle)
{
    return handle_get(K_CONDITION, (void *)handle);
}

void conditions_end(struct graph *g)
{
    for (CUgraphConditionalHandle next; g->conditions; g->conditions = next) {
        next = condition_of(g->conditions)->next;
        handle_drop(K_CONDITION, (void *)g->conditions);
    }
}

/* A condition is of the graph that has its node, or of one around it. */
static bool within(CUgraph graph, CUgraph around)
{
    for (const struct graph *g; (g = handle_get(K_GRAPH, graph)) && graph != around;)
        graph = g->parent;
    return graph == around;
}

static bool well_formed(CUgraph graph, const struct condition_params *p)
{
    const struct condition *c = condition_of(p->condition);
    const unsigned most[] = {[IF] = 2, [WHILE] = 1, [SWITCH] = BODIES};
    return c && within(graph, c->graph) && p->type >= IF && p->type <= SWITCH && p->size >= 1 && p->size <= most[p->type];
}

CUresult condition_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, struct condition_params *p)
{
    if (!well_formed(graph, p))
        return CUDA_ERROR_INVALID_VALUE;
    struct node like = {.type = N_CONDITION, .condition = *p};
    CUgraph *bodies = like.condition.bodies = calloc(p->size, sizeof *bodies);
    CUresult rc = bodies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; rc == CUDA_SUCCESS && i < p->size; i++) {
        struct graph *body = graph_new(&bodies[i]);
        if (body)
            body->parent = graph, body->body = true;
        else
            rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc == CUDA_SUCCESS)
        rc = graph_add(out, graph, after, count, &like);
    if (rc == CUDA_SUCCESS) {
        p->bodies = bodies;
        return CUDA_SUCCESS;
    }
    for (unsigned i = 0; bodies && i < p->size; i++)
        graph_end(bodies[i]);
    free(bodies);
    return rc;
}

CUresult condition_taken(const struct condition_params *p, CUgraph *out)
{
    const struct condition *c = condition_of(p->condition);
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned body = p->type == SWITCH ? c->initial : p->type == IF && c->initial == 0 ? 1 : 0;
    bool none = body >= p->size || (p->type == WHILE && c->initial == 0);
    *out = none ? NULL : p->bodies[body];
    return CUDA_SUCCESS;
}
