/* The entries of memory pools; what they do to the books is in pools.c. */
#include "intercepts/entries.h"

#include "services/graph_memory.h"
#include "services/pools.h"
#include "services/process_state.h"

/* Managed memory can come to the card at any moment, wherever it is to be at first. */
static int device_of(const struct pool_props *props)
{
    int device = process_location(&props->location);
    return device < 0 && props->type == ALLOCATION_MANAGED ? process_current_device() : device;
}

void pool_created(CUmemPool handle, const struct pool_props *props)
{
    if (props != NULL)
        pools_made(handle, device_of(props));
}

CUresult cuMemPoolDestroy(CUmemPool handle)
{
    return process_serves() ? pools_destroy(handle) : CUDA(cuMemPoolDestroy(handle));
}

/* What graphs forget, and give back. */
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
