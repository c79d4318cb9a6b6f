/*
 * What a launch costs in GPU time, learned from measured launches of the same key (spec hami-core 11.3).
 *
 * Clean samples teach: those during which nobody else had work on the device. Until there is one, the shortest contended
 * sample counts: waiting for the slices of others can only have made it longer, so the error is on the side of the cap.
 */
#ifndef VGPU_COST_H
#define VGPU_COST_H

#include <stdbool.h>
#include <stdint.h>

#define COST_UNKNOWN_NS 10000u /* taken for a launch of which nothing is known */

struct cost {
    uint64_t key;
    uint64_t mean_ns;
    uint32_t samples;
    uint32_t clean_samples;
    uint32_t outstanding; /* measured launches without an answer yet */
    uint32_t since_sample;
    uint32_t patience_lost; /* once waited too long for a first answer: never again */
    uint32_t pad; /* the next word is aligned */
    uint64_t last_sampled_ns;
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
    return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0 ? COST_UNKNOWN_NS
                                                                 : __atomic_load_n(&cost->mean_ns, __ATOMIC_RELAXED);
}

/* Whether this launch should be measured: the first ones always, then one of 32, later of 128 (graphs: 8), and one in 10 ms. */
bool cost_wants_sample(struct cost *cost, enum cost_shape shape, uint64_t now);

/*
 * The same among several streams, where what is measured depends on the place in a slice: after a pause the first launch alone would be
 * measured. Long ones are always measured, of short ones each with the same chance.
 */
bool cost_wants_sample_anywhere(struct cost *cost, uint64_t long_ns);

/* Learns from a measured duration while sharers (1 = alone) used the device; returns what the launch is to be charged. */
uint64_t cost_learn(struct cost *cost, uint64_t duration_ns, uint32_t sharers);

void cost_forget_all(void);

#endif
