/*
 * The memory that this process holds on a device as NVML counts it, against what the hooks booked (HAMi-core src/allocator/allocator.c).
 *
 * The difference slipped past the hooks: code of modules, stacks and heaps that the driver resized, contexts made on private paths. It is
 * booked as memory of modules, apart from data and contexts: what a module took when it was loaded belongs to the module and is given back
 * with it, the rest is the residue and follows NVML, up and down. Where NVML does not tell this process's memory, because it shows other
 * pids, the callers' own figure counts: what the card as a whole lost, within the bounds of what the call can have taken (services/nvml.h).
 *
 * NVML is asked at loads of modules and by the library's own thread, never on the way of a launch or an allocation.
 */
#ifndef VGPU_RECONCILE_H
#define VGPU_RECONCILE_H

#include "services/memory_sample.h"

#include <stdbool.h>
#include <stdint.h>

/* Brings the residue in line with NVML: by the watch each time, and else where something was booked since the last time. */
void reconcile_device(int device, bool by_the_watch);

/* After a move: it changed the residue; where NVML does not tell, by so much. Ends it. */
void reconcile_changed(int device, int64_t by);

bool reconcile_has_residue(int device);

/* Begins a move, with room for what is about to be taken: false when the limit has none, and nothing begins. Given back when it is over. */
bool reconcile_expect(int device, uint64_t bytes);
void reconcile_expected(int device, uint64_t bytes);

/* The bytes with which a module is booked, and those that it may hold besides in blocks that data pay for (services/blocks.h). */
struct claim {
    uint64_t bytes, lodges;
};

/*
 * Books memory that slipped past since the last time for a module, for which so much was expected; where NVML does not tell, it took
 * so much. It may hold the most. False when the limit has no room for it, what was expected stays reserved, and it has not ended.
 */
bool reconcile_claim(int device, uint64_t expected, uint64_t taken, uint64_t most, struct claim *claim);

/*
 * A module with this claim, or without one (NULL), was unloaded; where NVML does not tell, the card has so much more by it.
 * Blocks that it shared with others stay, as residue.
 */
void reconcile_unloaded(int device, const struct claim *claim, int64_t by);

/* The claim of a module that went with its context. */
void reconcile_return(int device, const struct claim *claim);

/* Data that were booked with so much are gone; it stays booked until a look shows that it is free. */
void reconcile_keep(int device, uint64_t bytes);

/* There is no room: looks whether what was kept is free by now. True when something is. */
bool reconcile_gives_back(int device);

/* No context is left on the device, and nothing that lived in one. */
void reconcile_forget(int device);

/*
 * Samples the memory that one call took, by NVML's figure before and after it. What else is booked and not on the card, or the
 * other way round, is on both sides and goes out: small arrays are booked by whole blocks and lie in one, and whoever took that
 * for room was wrong as soon as they were gone. `moving`: within a move of one's own. Exact where nobody else booked anything in
 * between.
 */
struct memory_sample reconcile_sight(int device, bool moving);
enum sampled reconcile_growth(const struct memory_sample *before, const struct memory_sample *after, int64_t *by);

/* Ends: what was expected is so much, and stays claimed until reconcile_return or reconcile_doubt. */
void reconcile_took(int device, uint64_t expected, uint64_t bytes);

/* Leaves to the next looks whether so much of a claim is still there. */
void reconcile_doubt(int device, uint64_t bytes);

void reconcile_before_fork(void); /* no thread is inside NVML while the process forks */
void reconcile_after_fork(void); /* in the parent */

#endif
