/* Nodes of graphs whose parameters the driver takes otherwise: kernels by their handles, copies by its own description, and the context that
 * they work in. */
#include "runtime.h"

#include <string.h>

struct kernel_node { /* cudaKernelNodeParams, and the driver's up to its last two */
    const void *function;
    dim3 grid, block;
    unsigned shared;
    void **arguments, **extra;
};
struct kernel_node_driver { struct kernel_node node; CUkernel kernel; CUcontext context; };
struct any_node { /* cudaGraphNodeParams */
    int type, reserved[3];
    union {
        struct kernel_node kernel;
        struct { int flags, reserved; CUcontext context; struct box box; } copy;
        struct { int flags, reserved; CUcontext context; CUDA_MEMCPY3D box; } driver_copy;
        struct { CUDA_MEMSET_NODE_PARAMS node; CUcontext context; } fill;
        long long words[29];
    };
    long long reserved_too;
};
enum { KERNEL_NODE, COPY_NODE, FILL_NODE };
_Static_assert(sizeof(struct any_node) == 256 && offsetof(struct any_node, copy.box) == 32, "cudaGraphNodeParams");

static int context_now(CUcontext *out)
{
    int rc = in_context();
    return rc ? rc : THE(cuCtxGetCurrent)(out);
}

static int for_driver(const struct kernel_node *node, struct kernel_node_driver *out)
{
    CUkernel kernel;
    int rc = node ? kernel_of(node->function, &kernel) : CUDA_ERROR_INVALID_VALUE;
    if (rc == 0) {
        *out = (struct kernel_node_driver){.node = *node};
        out->node.function = kernel;
    }
    return rc;
}

EXPORT int cudaGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct kernel_node *node)
{
    struct kernel_node_driver params;
    int rc = for_driver(node, &params);
    return settle(rc ? rc : THE(cuGraphAddKernelNode)(out, graph, after, count, &params));
}

EXPORT int cudaGraphKernelNodeGetParams(CUgraphNode node, struct kernel_node *out)
{
    struct kernel_node_driver params;
    int rc = out ? driver_ready() : CUDA_ERROR_INVALID_VALUE;
    rc = rc ? rc : THE(cuGraphKernelNodeGetParams)(node, &params);
    if (rc == 0)
        *out = params.node;
    return settle(rc);
}

EXPORT int cudaGraphKernelNodeSetParams(CUgraphNode node, const struct kernel_node *given)
{
    struct kernel_node_driver params;
    int rc = for_driver(given, &params);
    return settle(rc ? rc : THE(cuGraphKernelNodeSetParams)(node, &params));
}

EXPORT int cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const struct kernel_node *given)
{
    struct kernel_node_driver params;
    int rc = for_driver(given, &params);
    return settle(rc ? rc : THE(cuGraphExecKernelNodeSetParams)(exec, node, &params));
}

static int add_copy(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct box *box)
{
    CUcontext context;
    CUDA_MEMCPY3D copy;
    int rc = context_now(&context);
    rc = rc ? rc : box_copy(box, &copy);
    return rc ? rc : THE(cuGraphAddMemcpyNode)(out, graph, after, count, &copy, context);
}

static struct box line_box(void *to, const void *from, size_t bytes, int kind)
{
    return (struct box){.from = {(void *)from, bytes, bytes, 1}, .to = {to, bytes, bytes, 1}, .size = {bytes, 1, 1}, .kind = kind};
}

static int set_copy(CUgraphNode node, const struct box *box)
{
    CUDA_MEMCPY3D copy;
    int rc = driver_ready();
    rc = rc ? rc : box_copy(box, &copy);
    return rc ? rc : THE(cuGraphMemcpyNodeSetParams)(node, &copy);
}

static int set_copy_of(CUgraphExec exec, CUgraphNode node, const struct box *box)
{
    CUcontext context;
    CUDA_MEMCPY3D copy;
    int rc = context_now(&context);
    rc = rc ? rc : box_copy(box, &copy);
    return rc ? rc : THE(cuGraphExecMemcpyNodeSetParams)(exec, node, &copy, context);
}

EXPORT int cudaGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct box *box)
{
    return settle(add_copy(out, graph, after, count, box));
}

EXPORT int cudaGraphAddMemcpyNode1D(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, void *to, const void *from,
                                    size_t bytes, int kind)
{
    struct box box = line_box(to, from, bytes, kind);
    return settle(add_copy(out, graph, after, count, &box));
}

EXPORT int cudaGraphMemcpyNodeSetParams(CUgraphNode node, const struct box *box)
{
    return settle(set_copy(node, box));
}

EXPORT int cudaGraphMemcpyNodeSetParams1D(CUgraphNode node, void *to, const void *from, size_t bytes, int kind)
{
    struct box box = line_box(to, from, bytes, kind);
    return settle(set_copy(node, &box));
}

EXPORT int cudaGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const struct box *box)
{
    return settle(set_copy_of(exec, node, box));
}

EXPORT int cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node, void *to, const void *from, size_t bytes, int kind)
{
    struct box box = line_box(to, from, bytes, kind);
    return settle(set_copy_of(exec, node, &box));
}

EXPORT int cudaGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    CUcontext context;
    int rc = context_now(&context);
    return settle(rc ? rc : THE(cuGraphAddMemsetNode)(out, graph, after, count, fill, context));
}

EXPORT int cudaGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    CUcontext context;
    int rc = context_now(&context);
    return settle(rc ? rc : THE(cuGraphExecMemsetNodeSetParams)(exec, node, fill, context));
}

/* ---- nodes of any kind; those not named here are the same for both ---- */

static int any_for_driver(const struct any_node *node, struct any_node *out)
{
    CUcontext context;
    int rc = node ? context_now(&context) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    *out = *node;
    if (node->type == KERNEL_NODE) {
        out->words[7] = out->words[8] = 0; /* the driver's own: a kernel, and the current context */
        return kernel_of(node->kernel.function, (CUkernel *)&out->kernel.function);
    }
    if (node->type == COPY_NODE) {
        out->driver_copy.context = context;
        return box_copy(&node->copy.box, &out->driver_copy.box);
    }
    if (node->type == FILL_NODE)
        out->fill.context = context;
    return 0;
}

static int add_any(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, struct any_node *node)
{
    struct any_node params;
    int rc = any_for_driver(node, &params);
    rc = rc ? rc : THE(cuGraphAddNode)(out, graph, after, edges, count, &params);
    if (rc == 0 && node->type > FILL_NODE) /* what it tells of the new node: memory, bodies */
        *node = params;
    return rc;
}

#if RUNTIME <= 12
EXPORT int cudaGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, struct any_node *node)
{
    return settle(add_any(out, graph, after, NULL, count, node));
}
#define cudaGraphAddNode cudaGraphAddNode_v2
#endif
EXPORT int cudaGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, struct any_node *node)
{
    return settle(add_any(out, graph, after, edges, count, node));
}

EXPORT int cudaGraphNodeSetParams(CUgraphNode node, const struct any_node *given)
{
    struct any_node params;
    int rc = any_for_driver(given, &params);
    return settle(rc ? rc : THE(cuGraphNodeSetParams)(node, &params));
}

EXPORT int cudaGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, const struct any_node *given)
{
    struct any_node params;
    int rc = any_for_driver(given, &params);
    return settle(rc ? rc : THE(cuGraphExecNodeSetParams)(exec, node, &params));
}

EXPORT int cudaGraphConditionalHandleCreate(uint64_t *out, CUgraph graph, unsigned start, unsigned flags)
{
    CUcontext context;
    int rc = context_now(&context);
    return settle(rc ? rc : THE(cuGraphConditionalHandleCreate)(out, graph, context, start, flags));
}
