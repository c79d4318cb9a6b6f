#ifndef PUMICE_MACHINE_GRAPH_H
#define PUMICE_MACHINE_GRAPH_H

#include "objects.h"

struct graph *graph_new(CUgraph *out);
unsigned graph_number(void); /* the next one */
void graph_end(CUgraph graph);
CUresult graph_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const struct node *like);
bool node_forget(struct node *n, CUgraphNode before); /* takes a dependency away; false: there was none */
/* Sets kernel, shape and time of a node from the caller's parameters, which need not live on. */
CUresult node_set_kernel(struct node *n, const CUDA_KERNEL_NODE_PARAMS *p, unsigned card);
CUresult stream_enqueue_host(struct stream *s, CUhostFn function, void *data);
CUresult event_record_in(CUevent event, struct stream *s, struct context *context);
CUresult event_record_context(CUcontext handle, CUevent event); /* all that the context was given */
CUresult event_wait_context(CUcontext handle, CUevent event);
void conditions_end(struct graph *g); /* graph_condition.c */
CUresult condition_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, struct condition_params *p);
CUresult condition_taken(const struct condition_params *p, CUgraph *out); /* the graph that runs, NULL: none */
unsigned graph_card(void); /* of the current context, else the first */
CUresult graph_do_copy(const struct node *n);
CUresult graph_clone(CUgraph *out, CUgraph original);
struct step *step_of(CUgraphExec exec, CUgraphNode node, int type, struct graph_exec **out); /* NULL: no such step */

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p);
CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address);

/* user_object.c */
bool held_copy(struct held **to, const struct held *from); /* false: no memory; what was copied stays */
void held_end(struct held **held);

#endif
