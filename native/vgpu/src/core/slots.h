/*
 * Process slots of the region (spec hami-core 4.2). A slot never moves; its owner holds the record lock of the slot for as
 * long as it lives, so that death in any way is seen by anybody, also from another PID namespace and also by a zombie.
 */
#ifndef VGPU_SLOTS_H
#define VGPU_SLOTS_H

#include "core/region_map.h"

/* Claims the lowest free slot, after giving back what dead processes held; -1 when 1024 live processes hold them all. */
int slot_claim(struct region_map *map);

/* Empties this process's slot at exit. Its record lock goes with the process. */
void slot_leave(struct region_map *map);

/* Gives back what dead processes hold; how many slots were emptied. */
int slots_sweep(struct region_map *map);

/* True when nobody can own the slot any more. */
bool slot_is_dead(struct region_map *map, int slot);

/* Zeroes the slot everywhere; pid last, so that nobody claims it half empty. */
void slot_clear(struct region_map *map, int slot);

/* The number of slots to look at: the high-water mark, clamped, and at least up to our own. */
static inline int slots_in_use(const struct region_map *map)
{
    int count = shared_get(&map->region->proc_num);
    if (count < 0 || count > REGION_SLOTS)
        count = REGION_SLOTS;
    return count > map->slot ? count : map->slot + 1;
}

void slots_raise_mark(struct region *region, int count);

/* Field 22 of /proc/PID/stat; 0 when the process is gone or a zombie. */
uint64_t process_start_time(int pid);

#endif
