/* What graphs forget, and give back. */
#include "services/graph_memory.h"
#include "services/pools.h"
#include "services/process_state.h"

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (process_serves())
        graph_forget(exec);
    return CUDA(cuGraphExecDestroy(exec));
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    pools_graph_trimmed();
    CUresult rc = CUDA(cuDeviceGraphMemTrim(ordinal));
    int device = rc == CUDA_SUCCESS && process_serves() ? process_device(ordinal) : -1;
    if (device >= 0)
        pools_reconcile(device, false);
    return rc;
}
