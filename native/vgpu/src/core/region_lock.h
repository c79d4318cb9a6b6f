/*
 * A lock for all threads of all processes of a container: one word of the region that names the slot of its owner.
 *
 * Waiters sleep on the word and are woken; nobody polls for it. An owner that died is found out by the record lock of its slot
 * before the first sleep, and its lock is given. Record locks alone would not do: they do not tell threads of a process apart,
 * and who asks for one in pauses may miss its moment again and again.
 */
#ifndef VGPU_REGION_LOCK_H
#define VGPU_REGION_LOCK_H

#include "core/region_map.h"
#include "core/waits.h"

/* False when it was not to be had in time. A wait that has not begun (zeros) begins when it is not to be had at once. */
bool region_lock_take(struct region_map *map, uint32_t *lock, struct wait *wait);
void region_lock_give(uint32_t *lock);

#endif
