/*
 * Waits for the library's locks: each wait, for a lock of the region or of this process, is measured from its
 * beginning to its end and counted in the region, so that it outlives the process (`pumice vgpu status` shows it).
 *
 * What counts is the time for which the thread was kept waiting, not the time for which it could have gone on and had no processor:
 * the kernel tells that apart (/proc/thread-self/schedstat). Else a busy machine would make requests give up that nobody holds up.
 * Where the kernel does not tell, the clock counts alone.
 */
#ifndef VGPU_WAITS_H
#define VGPU_WAITS_H

#include "vgpu/region.h"

#include <pthread.h>
#include <stdbool.h>

#define LOCK_WAIT_MAX_NS 50000000ull /* the longest that a lock is ever waited for */

/* The counter to use from now on; NULL: for this process alone. */
void waits_go_to(struct ext_waits *shared);

struct wait {
    uint64_t begun_ns, starved_ns;
};

struct wait wait_begin(void);

/* For how long it has kept the thread. */
uint64_t wait_ns(const struct wait *wait);

/* Returns whether the wait has lasted as long as a lock is ever waited for. */
bool wait_is_over(const struct wait *wait);

/* Counts a wait that ends now. */
void wait_end(const struct wait *wait, bool late);

void mutex_take(pthread_mutex_t *mutex);

/* False when it was not to be had within the bound. */
bool mutex_take_in_time(pthread_mutex_t *mutex);

#endif
