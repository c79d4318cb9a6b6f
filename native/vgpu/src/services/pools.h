/*
 * Memory pools (HAMi-core src/allocator/allocator.c): what a pool costs is what it has reserved from the device, not its live blocks. The
 * device's graph memory is one more pool.
 */
#ifndef VGPU_POOLS_H
#define VGPU_POOLS_H

#include "driver/real.h"

/*
 * Brings the books of this process's pools on the device in line with the driver. With trim, unused reserves are given back first.
 * True when anything was freed for others.
 */
bool pools_reconcile(int device, bool trim);

/*
 * Before a graph that may take bytes runs, and after. A first run needs all of them beside what other graphs hold; a later one
 * finds its own again, unless the device's graph memory was trimmed since: generation tells. A refusal books nothing.
 */
bool pools_graph_begins(int device, uint64_t bytes, bool first);
void pools_graph_began(int device);
uint32_t pools_graph_generation(void); /* never 0; another one after each trim */
uint32_t pools_graph_trimmed(void);

typedef CUresult (*pool_allocation)(CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream);

/* handle NULL: the current pool of the current device. On a capturing stream only a graph node is made, and nothing is booked. */
CUresult pools_allocate(pool_allocation call, CUdeviceptr *pointer, size_t bytes, CUmemPool handle,
                        CUstream stream, bool per_thread);
void pools_made(CUmemPool handle, int device); /* device -1: host memory, not charged */
void pools_block_freed(CUdeviceptr pointer); /* of any pool, or of none */
CUresult pools_destroy(CUmemPool handle);
void pools_changed(CUmemPool handle); /* its reserve may have become another one */

bool pools_any(void); /* a pool may shrink at any synchronisation */
/* No pool grows until pools_go_on; false: one is growing right now, and nobody waits for it. */
bool pools_pause(void);
void pools_go_on(void);

#endif
