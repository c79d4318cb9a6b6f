/*
 * Time as the policy sees it: two entries of the real-symbol table. On hardware they are CLOCK_MONOTONIC and a nanosleep; on
 * an emulated machine in virtual time they are the machine's, so the same object runs in either time.
 */
#ifndef VGPU_CLOCK_H
#define VGPU_CLOCK_H

#include <stdint.h>

struct policy_clock {
    uint64_t (*now)(void);
    uint64_t (*coarse)(void); /* a few ms behind at most, for the path on which nothing is limited */
    void (*sleep)(uint64_t ns);
};

extern struct policy_clock policy_clock;

uint64_t clock_monotonic_ns(void);

#endif
