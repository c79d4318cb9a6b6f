/*
 * The memory that graphs with allocation nodes take when they are uploaded or first launched; how much is read from the nodes
 * when a graph is instantiated.
 */
#ifndef VGPU_GRAPH_MEMORY_H
#define VGPU_GRAPH_MEMORY_H

#include "driver/real.h"

/* Notes what the executable graph may take. */
void graph_instantiated(const CUgraphExec *exec, CUgraph graph);
void graph_forget(CUgraphExec exec);

/* Books the memory that the graph may take; a mask of the devices on which it does. *fits is false when it must not run. */
uint32_t graph_begin(CUgraphExec exec, bool *fits);
CUresult graph_end(CUgraphExec exec, uint32_t devices, CUresult rc);

#endif
