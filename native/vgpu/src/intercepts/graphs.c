/* Graphs: a launch costs the GPU time of the whole graph, and takes the memory of its allocation nodes (services/graph_memory.h). */
#include "services/graph_memory.h"
#include "services/launching.h"

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphInstantiate(exec, graph, node, log, bytes)), exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphInstantiate_v2(exec, graph, node, log, bytes)), exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphInstantiateWithFlags(exec, graph, flags)), exec, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphInstantiateWithParams(exec, graph, parameters)), exec, graph);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphInstantiateWithParams_ptsz(exec, graph, parameters)), exec, graph);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphExecUpdate(exec, graph, node, result)), &exec, graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result)
{
    const struct real *real = real_cuda();
    return graph_instantiated(real, INSIDE(real->cuGraphExecUpdate_v2(exec, graph, result)), &exec, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    const struct real *real = real_cuda();
    if (process_serves())
        graph_forget(exec);
    return INSIDE(real->cuGraphExecDestroy(exec));
}

typedef CUresult (*graph_call)(CUgraphExec exec, CUstream stream);

static CUresult upload(graph_call call, CUgraphExec exec, CUstream stream)
{
    bool fits;
    uint32_t devices = graph_begin(exec, &fits);
    if (!fits)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = INSIDE(call(exec, stream));
    if (devices != 0)
        graph_end(exec, devices, rc);
    return rc;
}

static CUresult run(graph_call call, CUgraphExec exec, CUstream stream, bool per_thread)
{
    bool fits;
    uint32_t devices = graph_begin(exec, &fits);
    if (!fits)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct shape shape = {.function = exec, .kind = SHAPE_GRAPH};
    struct launch launch;
    bool charged = launch_begin(&launch, &shape, stream, per_thread);
    CUresult rc = INSIDE(call(exec, stream));
    if (charged)
        rc = launch_done(&launch, rc);
    if (devices != 0)
        graph_end(exec, devices, rc);
    return rc;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(real_cuda()->cuGraphUpload, exec, stream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(real_cuda()->cuGraphUpload_ptsz, exec, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return run(real_cuda()->cuGraphLaunch, exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return run(real_cuda()->cuGraphLaunch_ptsz, exec, stream, true);
}
