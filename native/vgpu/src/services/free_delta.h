/*
 * What the card as a whole has less after a call than before, where nobody tells what this process has.
 *
 * What the container booked meanwhile is not the call's. What other containers took or gave back meanwhile is not told apart,
 * so whoever uses the figure bounds it by what the call can have taken.
 */
#ifndef VGPU_FREE_DELTA_H
#define VGPU_FREE_DELTA_H

#include "driver/real.h"

#include <stdint.h>

struct free_delta {
    int device;          /* region index; -1: nothing is to be measured */
    bool by_nvml;        /* there was no context to ask the driver in */
    uint64_t free_bytes; /* 0: not told */
    uint64_t booked;
};

/* In the current context, or by NVML, which needs none. Only devices with a memory limit are looked at. */
struct free_delta free_delta_in_context(int device);
struct free_delta free_delta_by_nvml(int device);

/* How much has gone since then; negative: there is more. 0 where nothing was told. */
int64_t free_delta_taken(const struct free_delta *before);

/* Whether the card has less at all; cheap, and enough to see that nothing happened. */
bool free_delta_less(const struct free_delta *before);

#endif
