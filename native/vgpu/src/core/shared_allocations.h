/*
 * Memory that several processes of a container hold (vgpu/region.h): exported by one, imported by others. The driver keeps it until
 * the last of them lets go, so somebody has to pay until then: the first that still holds it. What it pays is in its slot, like
 * everything else; here is only who comes next.
 *
 * Whoever is not known here, because the table or a list of holders is full, or the exporter is of another container, pays for himself.
 */
#ifndef VGPU_SHARED_ALLOCATIONS_H
#define VGPU_SHARED_ALLOCATIONS_H

#include "core/region_map.h"

/*
 * Adds a shared allocation that this process pays for already; 0: there is no place for it. Shared allocations are numbered from
 * 1. Under a limits page they stand in the ledger alone, beside what the process pays for, and the caller gives that back.
 */
uint32_t shared_allocation_new(struct region_map *map, int device, uint64_t bytes, uint64_t descriptors, uint64_t words);

/* A search in the table, one row after the other, or by the name that it has in the ledger (0: it has none). */
struct shared_allocation_search {
    bool (*is)(const struct shared_allocation *shared_allocation, const void *sought);
    uint64_t (*name)(const void *sought);
    const void *sought;
};

/* The first that is the one looked for is held by this process, too; 0: none is. what becomes a copy of it. */
uint32_t shared_allocation_join(struct region_map *map, const struct shared_allocation_search *search, struct shared_allocation *what);

/*
 * This process holds it no more: true when it was the one that paid. Whoever pays now has been charged by then, so what this process is to
 * give back counts twice for a moment, never not at all.
 */
bool shared_allocation_leave(struct region_map *map, uint32_t shared_allocation, struct shared_allocation *what);

/* The number of the next descriptor that is handed out; -1: there were too many. */
int shared_allocation_export(struct region_map *map, uint32_t shared_allocation, uint64_t *descriptors);

/* The handle of its bytes; 0 is refused. False where it has another already. */
bool shared_allocation_name(struct region_map *map, uint32_t shared_allocation, uint64_t words);

/* Takes out who died, then their slots (slots_sweep). */
int shared_allocations_sweep(struct region_map *map);

/* Called as the region is made anew: who stays, stays. NULL: nobody. */
void shared_allocations_format(struct region_map *map, bool (*keep)(int slot, void *data), void *data);

/* Takes an ending process out of all shared allocations; nothing is added to its slot while it is emptied. */
void shared_allocations_leave_slot(struct region_map *map);

#endif
