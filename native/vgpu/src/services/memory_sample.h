/*
 * NVML's figure for this process on a device, against what the books say of contexts and data: a look.
 *
 * Entries that change what no hook books are moves: between the driver's doing and the books the two differ, and a look at that moment
 * is not exact.
 */
#ifndef VGPU_MEMORY_SAMPLE_H
#define VGPU_MEMORY_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum sampled { SAMPLED_NOTHING, SAMPLED_AT_LEAST, SAMPLED_EXACTLY };
struct memory_sample {
    enum sampled answer;
    bool known;     /* else nothing is but that NVML would have told */
    bool calm;      /* nobody was between books and driver with data: at most modules were, that others load or unload */
    int64_t net;    /* the figure less contexts and data */
    uint64_t most;  /* and less only what is certain to be contexts and data (services/blocks.h) */
    uint64_t stamp; /* the slot's seqlock */
};

#define SAMPLED_BEFORE_ALL UINT64_MAX /* stamp of a process that had nothing, so that NVML did not name it */

enum asking { BY_THE_WATCH, BY_A_CALL, AFTER_A_MOVE };

/* One at a time. */
struct memory_sample sight(int device, enum asking asking);

void moves_begin(int device);
void moves_end(int device);

/* Adds to the bytes that moves have reserved and may have taken already. */
void moves_expect(int device, int64_t by);
uint64_t moves_expected(int device);

#endif
