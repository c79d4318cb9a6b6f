/*
 * A lock for all threads of all processes of a container: one word of the region that names the slot of its owner. Here is the word;
 * core/region_lock_wait.h waits for it.
 */
#ifndef VGPU_REGION_LOCK_H
#define VGPU_REGION_LOCK_H

#include "core/region_map.h"

#define TURN_OWNER 0xffffu       /* slot + 1; 0: nobody */
#define TURN_WAITED_FOR 0x10000u /* somebody may sleep on the word */

void region_lock_give(uint32_t *turn);

/* From this owner, and only from it, to the next. */
bool region_lock_take_from(uint32_t *turn, uint32_t owner, uint32_t next);

/* The slot's owner is gone: none of the turns is its own any more. Whoever calls holds the slot, or it is its own. */
void region_locks_end_of(struct region_map *map, int slot);

#endif
