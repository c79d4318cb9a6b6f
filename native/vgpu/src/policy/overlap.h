/*
 * Kernels of several streams of a process on one device: they may run side by side, and what the container pays is the time in which at
 * least one runs (HAMi-core src/multiprocess/multiprocess_utilization_watcher.c), not the sum of their times.
 *
 * Each stream is known by the end of what was launched on it, the device by the latest of these ends. A launch costs what it adds to that.
 * The time for which it counts is measured from when its stream is free to its end, so kernels that fill the device and wait for each other
 * count longer and the union of all is right either way.
 *
 * Streams are let go in slices: one launch, the leader, waits until everything before is paid for and opens a slice; whatever can start
 * within the slice goes with it at once, and the debt is the next leader's to wait for. Launch by launch, no two would ever meet.
 */
#ifndef VGPU_OVERLAP_H
#define VGPU_OVERLAP_H

#include "vgpu/region.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define OVERLAP_SLICE_NS 2000000ull     /* the shortest slice; a longer kernel makes it as long as itself */
#define OVERLAP_MEMORY_NS 200000000ull  /* a process that used one stream only for so long is one of one stream */

enum { OVERLAP_STREAMS = 64 };

/*
 * The time in which at least one of several kernels ran: how much of an interval no earlier one has covered.
 *
 * Intervals come in any order, for a long kernel answers after short ones that began later. Each moment is counted once, so
 * the sum of all answers is the length of the union. Of what lies further back than the last few dozen stretches only the sums are kept.
 */
enum { COVERAGE_SPANS = 32 };

struct coverage {
    unsigned count;
    struct span {
        uint64_t from_ns, until_ns, busy_ns; /* busy is less than the length where several were put together */
    } spans[COVERAGE_SPANS]; /* in order, apart from each other */
};

/* Counts the interval; how much of it is new, in ns. */
uint64_t coverage_add(struct coverage *coverage, uint64_t from_ns, uint64_t until_ns);

/* Zeros: nothing was launched. */
struct overlap {
    pthread_mutex_t lock;
    uint64_t last;         /* the stream of the last launch, and 1 more; 0: there was none */
    uint64_t several_until_ns;
    uint64_t busy_until_ns;
    uint64_t idle_from_ns, idle_until_ns; /* the last pause: work that ends in it after all was longer than expected */
    uint64_t slice_end_ns;
    uint64_t leader_until_ns; /* somebody waits to open a slice; a lease, for its thread may be cancelled while it waits */
    uint64_t opens_ns;        /* when that is expected */
    struct coverage measured; /* by the device's clock */
    struct overlap_stream {
        uint64_t stream, tail_ns;
        uint64_t measured_end_ns; /* of launch number measured: the next one began then or when it was made */
        uint32_t launches, measured;
    } streams[OVERLAP_STREAMS];
};

/* The stream that waits for all others and is no key of a stream. */
#define OVERLAP_LEGACY 0ull

/* A launch on this stream: whether the process uses several at present. Lock-free; time may be coarse. */
static inline bool overlap_several(struct overlap *overlap, uint64_t stream, uint64_t now)
{
    if (__builtin_expect(shared_peek(&overlap->last) != stream + 1, 0)) {
        uint64_t before = __atomic_exchange_n(&overlap->last, stream + 1, __ATOMIC_RELAXED);
        if (before != 0)
            shared_put(&overlap->several_until_ns, now + OVERLAP_MEMORY_NS);
    }
    return shared_peek(&overlap->several_until_ns) > now;
}

struct overlap_place {
    uint64_t stream, launched_ns;
    uint32_t number;    /* on its stream */
    uint64_t start_ns;  /* when its stream is free */
    uint64_t cost_ns;
    int64_t extension;  /* what it adds to the device's busy time, to be charged */
    bool all_measured;  /* every launch of its kind is */
};

enum overlap_verdict { OVERLAP_GO, OVERLAP_LEAD, OVERLAP_WAIT };

/* GO: launch now. LEAD: wait until all before is paid for, then open. WAIT: look again after so many ns. */
enum overlap_verdict overlap_ask(struct overlap *overlap, uint64_t stream, uint64_t now, uint64_t cost, struct overlap_place *place,
                                 uint64_t *wait);
void overlap_expect(struct overlap *overlap, uint64_t opens_ns);
void overlap_open(struct overlap *overlap, uint64_t stream, uint64_t now, uint64_t cost, struct overlap_place *place);
void overlap_give_up(struct overlap *overlap); /* the leader does not launch */

/*
 * The launch took this long and ended at that time of the device's own clock: what is to be charged on top, or given back when
 * negative. Where all of its kind are measured, it is exact: what others have not covered.
 */
int64_t overlap_measured(struct overlap *overlap, const struct overlap_place *place, uint64_t duration, uint64_t end_ns);

#endif
