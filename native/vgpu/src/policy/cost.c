#include "policy/cost.h"

#include <string.h>

enum { ENTRIES = 4096, PROBES = 8, FIRST_KERNELS = 3, FIRST_GRAPHS = 5, WELL_KNOWN = 64, GRAPH_RATE = 8, MEMORY = 8, DOUBT = 8 };
#define SAMPLE_INTERVAL_NS 10000000ull

static struct cost table[ENTRIES];

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 32);
}

/* Grids of about the same size cost about the same: the upper four bits of the number of blocks. */
static uint64_t size_class(uint64_t blocks)
{
    int bits = blocks == 0 ? 0 : 64 - __builtin_clzll(blocks);
    return bits <= 4 ? blocks : ((uint64_t)bits << 4) | (blocks >> (bits - 4));
}

uint64_t cost_key(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes)
{
    uint64_t hash = mix((uint64_t)(uintptr_t)function, size_class(blocks));
    hash = mix(hash, ((uint64_t)threads << 32) | shared_bytes);
    return hash | 1; /* never 0, which means an empty entry */
}

struct cost *cost_of(uint64_t key)
{
    uint64_t home = key >> 8;
    for (int i = 0; i < PROBES; i++) {
        struct cost *entry = &table[(home + (uint64_t)i) % ENTRIES];
        uint64_t held = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (held == key)
            return entry;
        if (held == 0 && __atomic_compare_exchange_n(&entry->key, &held, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return entry;
        if (held == key)
            return entry;
    }
    /* Crowded: the home entry starts again with this key. Answers still on their way teach the newcomer, once. */
    struct cost *entry = &table[home % ENTRIES];
    __atomic_store_n(&entry->samples, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->clean_samples, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    return entry;
}

bool cost_wants_sample(struct cost *cost, enum cost_shape shape, uint64_t now)
{
    uint32_t first = shape == SHAPE_GRAPH ? FIRST_GRAPHS : FIRST_KERNELS;
    uint32_t samples = __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);
    uint32_t rate = shape == SHAPE_GRAPH ? GRAPH_RATE : samples < WELL_KNOWN ? COST_EARLY_RATE : COST_SAMPLE_RATE;
    uint32_t since = __atomic_add_fetch(&cost->since_sample, 1, __ATOMIC_RELAXED);
    uint32_t known = samples + __atomic_load_n(&cost->outstanding, __ATOMIC_RELAXED);
    if (known >= first && since < rate && now - __atomic_load_n(&cost->last_sampled_ns, __ATOMIC_RELAXED) < SAMPLE_INTERVAL_NS)
        return false;
    __atomic_store_n(&cost->since_sample, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->last_sampled_ns, now, __ATOMIC_RELAXED);
    return true;
}

bool cost_wants_sample_anywhere(struct cost *cost, uint64_t long_ns)
{
    uint32_t lot = __atomic_add_fetch(&cost->since_sample, 1, __ATOMIC_RELAXED) * 2654435761u;
    return cost_estimate(cost) >= long_ns || __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) < FIRST_KERNELS ||
           lot < UINT32_MAX / COST_EARLY_RATE;
}

static uint64_t blend(uint64_t mean, uint64_t value, uint32_t samples)
{
    int64_t weight = samples + 1 < MEMORY ? (int64_t)samples + 1 : MEMORY;
    return (uint64_t)((int64_t)mean + ((int64_t)value - (int64_t)mean) / weight);
}

uint64_t cost_learn(struct cost *cost, uint64_t duration_ns, uint32_t sharers)
{
    uint64_t mean = __atomic_load_n(&cost->mean_ns, __ATOMIC_RELAXED), charge = duration_ns;
    uint32_t samples = __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);
    uint32_t clean = __atomic_load_n(&cost->clean_samples, __ATOMIC_RELAXED);
    if (sharers <= 1) {
        mean = blend(clean == 0 ? duration_ns : mean, duration_ns, clean); /* the first clean one replaces all guesses */
        __atomic_store_n(&cost->clean_samples, clean + 1, __ATOMIC_RELAXED);
    } else if (clean > 0) {
        /* Beside others it can only have become longer: shorter than the mean says that the mean was not so clean. */
        charge = duration_ns < mean ? duration_ns : mean;
        mean -= (mean - charge) / DOUBT;
    } else {
        /* Waiting for others is in every one of these, so the shortest is the nearest to the truth and still above it. */
        charge = mean = samples == 0 || duration_ns < mean ? duration_ns : mean;
    }
    __atomic_store_n(&cost->mean_ns, mean, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->samples, samples + 1, __ATOMIC_RELAXED);
    return charge;
}

void cost_forget_all(void)
{
    memset(table, 0, sizeof table);
}
