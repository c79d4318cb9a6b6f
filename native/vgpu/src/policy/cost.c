#include "policy/cost.h"

#include "core/after_fork.h"
#include "core/numbers.h"

enum { ENTRIES = 4096, PROBES = 8 };
enum { FIRST_KERNELS = 3, FIRST_GRAPHS = 5, WELL_KNOWN = 64, GRAPH_RATE = 8 };
enum { MEMORY = 8, LONG_MEMORY = 64, NEAR_MEMORY = 32 }; /* samples that count; the longer one evens out launches that differ */
enum { ALL = 32768 };             /* the whole of near_shortest */
enum { OTHERS_BITS = 40 };        /* 128 launches of MOST_CHARGED_NS fit */
#define ONE_OTHER (1ull << OTHERS_BITS)
#define MOST_CHARGED_NS 8000000000ull
#define OUTLIER 16u               /* more than so many means a launch only says of itself */
#define SAMPLE_INTERVAL_NS 10000000ull
#define RESOLUTION_NS 1000u       /* of a pair of events: differences up to it say nothing */
#define SLICE_NS 2000000ull       /* of the driver, when several processes use the device */

static struct cost table[ENTRIES];
FORGET_IN_CHILD(table);
static uint32_t lots; /* drawn among several streams */
uint64_t cost_long_ns = COST_LONG_NS;

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
    shared_put(&entry->samples, 0);
    shared_put(&entry->clean_samples, 0);
    shared_put(&entry->others, 0);
    shared_put(&entry->many_lengths, 0);
    __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    return entry;
}

/* Launches of one key that differ by more than a sixteenth on average. */
static bool varied(const struct cost *cost)
{
    return shared_peek(&cost->spread_ns) > cost_estimate(cost) / 16 + RESOLUTION_NS;
}

static uint32_t sample_rate(const struct cost *cost, enum cost_shape shape, uint32_t samples)
{
    uint32_t usual = shape == SHAPE_GRAPH ? GRAPH_RATE : samples < WELL_KNOWN ? COST_EARLY_RATE : COST_SAMPLE_RATE;
    if (!varied(cost))
        return usual;
    uint64_t affordable = cost_long_ns / (cost_estimate(cost) + 1) + 1;
    return affordable < usual ? (uint32_t)affordable : usual;
}

bool cost_wants_sample(struct cost *cost, enum cost_shape shape, uint64_t now, uint64_t estimate, struct cost_others *others)
{
    uint64_t charged = estimate < MOST_CHARGED_NS ? estimate : MOST_CHARGED_NS;
    uint64_t before = shared_count(&cost->others, ONE_OTHER + charged);
    uint32_t samples = shared_peek(&cost->samples);
    uint32_t known = samples + shared_peek(&cost->outstanding);
    if (known >= (shape == SHAPE_GRAPH ? FIRST_GRAPHS : FIRST_KERNELS) &&
        (before >> OTHERS_BITS) + 1 < sample_rate(cost, shape, samples) &&
        now - shared_peek(&cost->last_sampled_ns) < SAMPLE_INTERVAL_NS)
        return false;
    uint64_t taken = __atomic_exchange_n(&cost->others, 0, __ATOMIC_RELAXED);
    if (taken < ONE_OTHER + charged)
        return false; /* another thread measures one of the same moment */
    taken -= ONE_OTHER + charged;
    *others = (struct cost_others){(uint32_t)(taken >> OTHERS_BITS), taken & (ONE_OTHER - 1)};
    shared_put(&cost->last_sampled_ns, now);
    return true;
}

bool cost_wants_sample_anywhere(struct cost *cost)
{
    uint32_t lot = __atomic_add_fetch(&lots, 1, __ATOMIC_RELAXED) * 2654435761u;
    return cost_estimate(cost) >= cost_long_ns || shared_peek(&cost->samples) < FIRST_KERNELS || lot < UINT32_MAX / COST_EARLY_RATE;
}

static uint64_t blend(uint64_t mean, uint64_t value, uint32_t samples, uint32_t memory)
{
    int64_t weight = samples < memory ? (int64_t)samples + 1 : memory;
    return (uint64_t)((int64_t)mean + ((int64_t)value - (int64_t)mean) / weight);
}

bool cost_known_alone(const struct cost *cost)
{
    return shared_peek(&cost->clean_samples) >= FIRST_KERNELS;
}

/* A sample counts for the mean and for how far samples are from it. */
static void note(struct cost *cost, uint64_t duration, uint32_t before)
{
    uint64_t mean = before == 0 ? duration : shared_peek(&cost->mean_ns);
    uint64_t spread = before == 0 ? 0 : shared_peek(&cost->spread_ns);
    shared_put(&cost->spread_ns, blend(spread, distance_u64(duration, mean), before, MEMORY));
    shared_put(&cost->mean_ns, blend(mean, duration, before, varied(cost) ? LONG_MEMORY : MEMORY));
}

/*
 * Whether contended samples are of one length, the shortest of them, and the others have waited: many came close to it, or it is
 * longer than a slice and none has waited longer than for the turns of all others.
 */
static bool is_learned(const struct cost *cost)
{
    return shared_peek(&cost->near_shortest) == ALL || (shared_peek(&cost->shortest_ns) >= SLICE_NS &&
            !shared_peek(&cost->many_lengths));
}

bool cost_is_unsure(const struct cost *cost)
{
    uint32_t samples = shared_peek(&cost->samples), clean = shared_peek(&cost->clean_samples);
    return samples > clean && (clean == 0 || varied(cost)) && !is_learned(cost);
}

static bool settles_on_shortest(struct cost *cost, uint64_t duration, uint32_t sharers, bool first)
{
    uint64_t shortest = first ? duration : shared_peek(&cost->shortest_ns);
    uint16_t near = first ? 0 : shared_peek(&cost->near_shortest);
    bool shorter = duration + duration / 16 < shortest, close = duration <= shortest + shortest / 16 + RESOLUTION_NS;
    shortest = duration < shortest ? duration : shortest;
    bool unexplained = duration > (sharers + 1) * (shortest + SLICE_NS); /* one of them may have had two turns */
    if (shorter || unexplained)
        near = 0;
    else if (near < ALL)
        near = (uint16_t)(near - near / NEAR_MEMORY + (close ? ALL / NEAR_MEMORY : 0));
    shared_put(&cost->shortest_ns, shortest);
    shared_put(&cost->near_shortest, near < ALL / 4 ? near : ALL); /* until something speaks against it */
    if (unexplained)
        shared_put(&cost->many_lengths, 1);
    return is_learned(cost);
}

/*
 * Beside others: what of the duration is taken for the launch's own. Waiting for the slices of others can only have made it longer. So all
 * of it is, unless launches of the kind are known to be of one length.
 */
static uint64_t learn_contended(struct cost *cost, uint64_t duration, uint32_t samples, uint32_t clean, uint32_t sharers)
{
    bool shortest = settles_on_shortest(cost, duration, sharers, samples == clean);
    if ((clean == 0 || varied(cost)) && shortest) {
        shared_put(&cost->mean_ns, shared_peek(&cost->shortest_ns));
        shared_put(&cost->spread_ns, 0);
    }
    uint64_t mean = shared_peek(&cost->mean_ns);
    bool one_length = shortest || (clean > 0 && !varied(cost));
    if (clean == 0 && !shortest)
        note(cost, duration, samples);
    else if (duration < mean)
        note(cost, duration, MEMORY); /* it cannot have become shorter: the mean was not so clean, or they are of many lengths */
    else if (!one_length)
        shared_put(&cost->mean_ns, blend(mean, duration, LONG_MEMORY, LONG_MEMORY));
    if (!one_length || duration < mean)
        return duration;
    /* The turns of others are slices no longer than its own, and one of them may have had its turn first. */
    uint64_t part = duration / sharers, least = part > SLICE_NS ? part - SLICE_NS : 0;
    if (least > mean)
        shared_put(&cost->mean_ns, mean + (least - mean) / MEMORY); /* it has become longer itself */
    return least > mean ? least : mean;
}

struct cost_verdict cost_learn(struct cost *cost, uint64_t duration_ns, uint32_t sharers, struct cost_others others)
{
    uint32_t samples = shared_peek(&cost->samples), clean = shared_peek(&cost->clean_samples);
    uint64_t own = duration_ns;
    if (sharers <= 1) {
        note(cost, duration_ns, clean); /* the first one replaces all guesses */
        shared_put(&cost->clean_samples, clean + 1);
    } else {
        own = learn_contended(cost, duration_ns, samples, clean, sharers);
    }
    shared_put(&cost->samples, samples + 1);
    uint64_t most = cost_estimate(cost) * OUTLIER, each = own < most ? own : most;
    return (struct cost_verdict){own, (int64_t)(each * others.launches) - (int64_t)others.charged_ns};
}
