/*
 * The time in which at least one of several kernels ran: how much of an interval no earlier one has covered.
 *
 * Intervals come in any order, for a long kernel answers after short ones that began later. Each moment is counted once, so
 * the sum of all answers is the length of the union. Of what lies further back than the last few dozen stretches only the sums are kept.
 */
#ifndef VGPU_COVERAGE_H
#define VGPU_COVERAGE_H

#include <stdint.h>

enum { COVERAGE_SPANS = 32 };

struct coverage {
    unsigned count;
    struct span {
        uint64_t from_ns, until_ns, busy_ns; /* busy is less than the length where several were put together */
    } spans[COVERAGE_SPANS]; /* in order, apart from each other */
};

/* Counts the interval; how much of it is new, in ns. */
uint64_t coverage_add(struct coverage *coverage, uint64_t from_ns, uint64_t until_ns);

#endif
