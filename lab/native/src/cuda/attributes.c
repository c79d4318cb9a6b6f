/* Attributes of streams and of kernels in graphs: hints about caches, priorities and clusters. They are taken and change nothing. */
#define _GNU_SOURCE
#include "objects.h"

#include <string.h>

#define VALUE_BYTES 32 /* the longest that is served, the access policy window; unions before CUDA 12 are no longer than that */

static CUresult stream_attribute(CUstream stream, int attribute, const void *value)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    if (!stream_of(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    return value && attribute >= 0 && attribute < 32 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamSetAttribute(CUstream stream, int attribute, const void *value)
{
    ENTER(cuStreamSetAttribute);
    return stream_attribute(stream, attribute, value);
}

EXPORT CUresult cuStreamGetAttribute(CUstream stream, int attribute, void *value)
{
    ENTER(cuStreamGetAttribute);
    CUresult rc = stream_attribute(stream, attribute, value);
    if (rc == CUDA_SUCCESS)
        memset(value, 0, VALUE_BYTES);
    return rc;
}

EXPORT CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    ENTER(cuStreamCopyAttributes);
    CUresult rc = stream_attribute(to, 1, "");
    return rc ? rc : stream_attribute(from, 1, "");
}

static CUresult kernel_attribute(CUgraphNode node, int attribute, const void *value)
{
    struct node *n = handle_get(K_NODE, node);
    return n && n->type == N_KERNEL && value && attribute >= 0 && attribute < 32 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const void *value)
{
    ENTER(cuGraphKernelNodeSetAttribute);
    return kernel_attribute(node, attribute, value);
}

EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void *value)
{
    ENTER(cuGraphKernelNodeGetAttribute);
    CUresult rc = kernel_attribute(node, attribute, value);
    if (rc == CUDA_SUCCESS)
        memset(value, 0, VALUE_BYTES);
    return rc;
}

EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    ENTER(cuGraphKernelNodeCopyAttributes);
    CUresult rc = kernel_attribute(to, 1, "");
    return rc ? rc : kernel_attribute(from, 1, "");
}

/* A disabled node is skipped; here every node of an instantiated graph is enabled. */
EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
    ENTER(cuGraphNodeGetEnabled);
    if (!enabled || !handle_get(K_EXEC, exec) || !handle_get(K_NODE, node))
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
    ENTER(cuGraphNodeSetEnabled);
    if (!handle_get(K_EXEC, exec) || !handle_get(K_NODE, node))
        return CUDA_ERROR_INVALID_VALUE;
    return enabled ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
