/*
 * The cost of a launch in GPU time, learned from measured launches of the same key (HAMi-core
 * src/multiprocess/multiprocess_utilization_watcher.c).
 *
 * The mean is what a launch is charged beforehand. What was measured has the last word: its launch is charged what it took, and so
 * are those of its key that were not measured since the one before. So the sum charged is the sum measured, however far
 * the mean was off; charged by the mean alone, a program would launch more often while the mean happens to be low, and get more than
 * its limit for ever. Keys whose launches differ much are measured as often as they can afford.
 *
 * Clean samples teach: those during which nobody else had work on the device. The others hold the slices of others as well, so they are
 * charged in full only where launches of the kind are not known to be of one length: the error is on the side of the cap.
 */
#ifndef VGPU_COST_H
#define VGPU_COST_H

#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

#define COST_UNKNOWN_NS 10000u /* taken for a launch of which nothing is known */
#define COST_LONG_NS 100000u   /* from here on a launch can afford a clock, a pair of events and the look at them: about 3 us */

/* Each process has to know when the one before is done where they take turns, which is worth more. */
#define COST_TURNS_LONG_NS 20000u
extern uint64_t cost_long_ns; /* the one that holds */

struct cost {
    uint64_t key;
    uint64_t mean_ns;
    uint64_t spread_ns;   /* mean distance of samples from the mean: of the clean ones, once there is one */
    uint64_t shortest_ns; /* of the contended samples */
    uint64_t last_sampled_ns;
    uint64_t measured_at_ns; /* when the last one that is measured was launched */
    uint64_t others; /* in one word, so that counting takes one addition: number << 40 | ns charged */
    uint32_t samples;
    uint32_t clean_samples;
    uint32_t outstanding; /* measured launches without an answer yet */
    uint8_t patience_lost; /* once waited too long for a first answer: never again */
    uint8_t many_lengths;  /* contended samples were further apart than waiting explains */
    uint16_t near_shortest; /* the share of contended samples that are, in 1/32768 */
};

/* Launches of a key since the last one that was measured, and what they were charged together. */
struct cost_others {
    uint32_t launches;
    uint64_t charged_ns;
};

/* Of this many launches one is measured: of a kind that is not well known yet, and of one that is. */
#define COST_EARLY_RATE 32u
#define COST_SAMPLE_RATE 128u

enum cost_shape { SHAPE_KERNEL, SHAPE_GRAPH };

uint64_t cost_key(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes);

/* The entry of a key; a stranger's entry may be taken over when the table is crowded there. Never NULL. */
struct cost *cost_of(uint64_t key);

static inline uint64_t cost_estimate(const struct cost *cost)
{
    return shared_peek(&cost->samples) == 0 ? COST_UNKNOWN_NS : shared_peek(&cost->mean_ns);
}

/*
 * Returns whether this launch should be measured: the first ones always, then one of 32, later of 128 (graphs: 8), and one in 10 ms. Where
 * launches differ much: each that is long, and of short ones as many as take a few percent of their time to measure.
 */
bool cost_wants_sample(struct cost *cost, enum cost_shape shape, uint64_t now, uint64_t estimate, struct cost_others *others);

/*
 * The same among several streams, where what is measured depends on the place in a slice: after a pause the first launch alone would be
 * measured. Long ones are always measured, of short ones each with the same chance. No launch is spoken for by another: what it
 * adds depends on what else runs.
 */
bool cost_wants_sample_anywhere(struct cost *cost);

/* Returns whether enough of the kind were measured alone. */
bool cost_known_alone(const struct cost *cost);

/* Returns whether samples taken beside others are charged in full, for want of a known length. */
bool cost_is_unsure(const struct cost *cost);

struct cost_verdict {
    uint64_t own_ns;   /* what the measured launch is to be charged */
    int64_t others_ns; /* on top for those of its key that were not measured, or given back when negative */
};

/* Learns from a measured duration while sharers (1 = alone) used the device; others: those for whom it speaks. */
struct cost_verdict cost_learn(struct cost *cost, uint64_t duration_ns, uint32_t sharers, struct cost_others others);

#endif
