/*
 * The memory that each process of a container holds, in the one place of the container that none of them can write for another:
 * the kernel's record locks. Under a limits page this decides, and the bytes of the region only tell monitors.
 *
 * A process holds a byte of the region's file, far behind its end, for each byte of device memory that it was granted, in a lane
 * of its own. Nobody takes a lock from who lives, and with the last descriptor and mapping of a process its locks go. So what is
 * written into the region, or that it is made anew, takes nothing out of the sum; locks that a tenant adds make his own share
 * smaller.
 *
 *   held alone   granted
 *   shared       asked for: announced before it is looked whether it fits (policy/memory.h)
 *
 * Memory that several processes hold together lies in a place of its own, which each of them shares, so it counts once for as
 * long as any of them lives. Under what name it is known (a handle, a descriptor) is a lock, too: its position says name, device
 * and place.
 */
#ifndef VGPU_LEDGER_H
#define VGPU_LEDGER_H

#include "core/region_map.h"

struct ledger;

/* After the slot was claimed: false where the kernel has no locks of open files. Else the table of shared allocations is no longer asked. */
bool ledger_open(struct region_map *map);

/* Announces, looks whether it fits with all that others hold and ask for, and holds it or leaves no trace. limit 0: whatever others hold. */
bool ledger_request(struct region_map *map, int device, uint64_t bytes, uint64_t limit);

void ledger_give_back(struct region_map *map, int device, uint64_t bytes);

/* Returns the bytes that the container holds on a device; `asked`: with those that it asks for on the fast path.
 * UINT64_MAX: it cannot be told. */
uint64_t ledger_sum(struct region_map *map, int device, bool asked);

/* One process of the container at a time, and one of its threads. False: not in time. */
bool ledger_lock_take(struct region_map *map, int device);
void ledger_lock_give(struct region_map *map, int device);

/* Returns the bytes that a context took when a living process last measured one; 0: unknown. The first context is made alone. */
uint64_t ledger_context(struct region_map *map, int device);
void ledger_context_took(struct region_map *map, int device, uint64_t bytes);
bool ledger_first_context(struct region_map *map, int device);
void ledger_first_context_made(struct region_map *map, int device);

/*
 * Shared allocations (core/shared_allocations.h), numbered by this process. A new one is held beside what the process was
 * granted, which the caller gives back; what is joined is known by its name, and how large it is and where the kernel says. 0 is
 * no name and no number.
 */
uint32_t ledger_shared_new(struct region_map *map, int device, uint64_t bytes, uint64_t descriptors, uint64_t words);
bool ledger_shared_name(struct region_map *map, uint32_t number, uint64_t name);
int ledger_shared_export(struct region_map *map, uint32_t number, uint64_t *descriptors);
uint32_t ledger_shared_join(struct region_map *map, uint64_t name, struct shared_allocation *what);
void ledger_shared_leave(struct region_map *map, uint32_t number, struct shared_allocation *what);

/*
 * Returns the bytes of its shared allocations that the driver counts as this process's. Who made it has it until it lets go, and
 * who is left alone has it. Of several who are left nobody knows which: *certain is false then, and it is taken to be the one
 * that monitors are told of.
 */
uint64_t ledger_shared_counted(struct region_map *map, int device, bool *certain);

/* Returns the bytes of shared allocations that this process pays for, as monitors read it: of each one holder pays. */
uint64_t ledger_shared_paid(struct region_map *map, int device);

#endif
