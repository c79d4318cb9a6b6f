/*
 * The container's GPU time among its processes: each the same, as far as it asks for it.
 *
 * Tickets (policy/budget.h) are served in the order in which they came, one launch each: alone, who launches longer kernels, or on more
 * streams, would get more. So before a launch takes its ticket its process must not be ahead of the others that ask: what each has used
 * stands in the region, and who has used more waits until the others have caught up. Who does not ask is waited for as long as
 * the budget has room to save up, and no longer: nothing of the container's time is lost. Who comes late, or has not asked for a while,
 * begins where the others are.
 */
#ifndef VGPU_FAIR_H
#define VGPU_FAIR_H

#include "core/region_map.h"

/* This process used so much, or less when negative. */
void fair_used(struct region_map *map, int device, int64_t ns);

/* It goes on asking until then. */
void fair_asks(struct region_map *map, int device, uint64_t until);

/* 0: it may take a ticket; else when to ask again. The budget has been brought up to now. */
uint64_t fair_wait_ns(struct region_map *map, int device, uint64_t percent, uint64_t now);

#endif
