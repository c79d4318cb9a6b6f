#ifndef PUMICE_MACHINE_GRAPH_H
#define PUMICE_MACHINE_GRAPH_H

#include "objects.h"

struct graph *graph_new(CUgraph *out);
void graph_end(CUgraph graph);
CUresult graph_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct node *like);
/* Sets kernel, shape and time of a node from the caller's parameters, which need not live on. */
CUresult node_set_kernel(struct node *n, const CUDA_KERNEL_NODE_PARAMS *p, unsigned card);
CUresult stream_enqueue_host(struct stream *s, CUhostFn function, void *data);
CUresult event_record_in(CUevent event, struct stream *s, struct context *context);
CUresult graph_do_copy(const struct node *n);

#endif
