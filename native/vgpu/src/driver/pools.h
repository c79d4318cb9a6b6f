/*
 * Memory pools (spec hami-core 9.4): what a pool costs is what it has reserved from the device, not its live blocks.
 * The device's graph memory is one more pool.
 */
#ifndef VGPU_POOLS_H
#define VGPU_POOLS_H

#include "driver/real.h"

/*
 * Brings the books of this process's pools on the device in line with the driver. With trim, unused reserves are given back first.
 * True when anything was freed for others.
 */
bool pools_settle(int device, bool trim);

/*
 * Before a graph that may take bytes runs, and after. A first run needs all of them beside what other graphs hold; a later one
 * finds its own again, unless the device's graph memory was trimmed since: generation tells. A refusal books nothing.
 */
bool pools_graph_begins(int device, uint64_t bytes, bool first);
void pools_graph_began(int device);
uint32_t pools_graph_generation(void); /* never 0; another one after each trim */

void pools_after_fork(void);

#endif
