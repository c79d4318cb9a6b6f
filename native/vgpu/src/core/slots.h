/*
 * Process slots of the region (HAMi-core src/multiprocess/multiprocess_memory_limit.c). A slot never moves; its owner holds the record lock
 * of the slot for as long as it lives, so that death in any way is seen by anybody, also from another PID namespace and also by a zombie.
 */
#ifndef VGPU_SLOTS_H
#define VGPU_SLOTS_H

#include "core/region_map.h"

/* Claims the lowest free slot, after giving back what dead processes held; -1 when 1024 live processes hold them all. */
int slot_claim(struct region_map *map);

/*
 * The process ends: its slot is empty for monitors at once, but what it holds counts against the limit until it is gone and has
 * given its memory back to the driver. Its record lock goes with it, and whoever sweeps next empties the rest.
 */
void slot_leave(struct region_map *map);

/*
 * Gives back what dead processes hold, but for who holds something together (shared_allocations_sweep); how many slots were
 * emptied, -1: of some somebody else is about to.
 */
int slots_sweep(struct region_map *map);

/* Holds the record lock of another's slot: false when its owner lives, or somebody else holds it. For moments only. */
bool slot_hold(struct region_map *map, int slot);
void slot_let_go(struct region_map *map, int slot);

/* True when the owner is gone and has nothing on a card any more. */
bool slot_is_dead(struct region_map *map, int slot);

/* True when the owner runs no more code, though it may still hold memory. For a slot that is held. */
bool slot_has_stopped(struct region_map *map, int slot);

/* Returns the bytes that the slot's owner holds on a device. */
uint64_t slot_holds(const struct region_map *map, int slot, int device);

/* The owner of a slot that nobody locks is about to be gone. */
bool slot_is_ending(const struct region_map *map, int slot);

/* Nobody's, and nothing of anybody's is left in it. */
bool slot_is_free(const struct region_map *map, int slot);

/*
 * A lock for all threads of all processes of a container (core/region_lock.h) is a word of the region that names the slot of its owner:
 * from this owner, and only from it, to the next.
 */
#define LOCK_OWNER 0xffffu       /* slot + 1; 0: nobody */
#define LOCK_WAITED_FOR 0x10000u /* somebody may sleep on the word */
bool slot_lock_pass(uint32_t *lock, uint32_t owner, uint32_t next);

/* Zeroes the slot everywhere, and ends what locks it has. */
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

#endif
