/* The table of shared allocations (core/shared_allocations.h) as it is read: the file is the container's own, so nothing in it is taken on trust. */
#ifndef VGPU_SHARED_ALLOCATION_TABLE_H
#define VGPU_SHARED_ALLOCATION_TABLE_H

#include "core/region_map.h"

/* How many places to look at. */
uint32_t shared_allocations_places(const struct region_map *map);

/* NULL: what is there is no shared allocation, and nobody's. */
struct shared_allocation *shared_allocation_at(struct region_map *map, uint32_t place);

/* Which of the holders that slot is; -1: none. */
int shared_allocation_place_of(const struct shared_allocation *shared_allocation, int slot);

/* Whether that slot is among the holders of any. */
bool shared_allocations_hold(struct region_map *map, int slot);

#endif
