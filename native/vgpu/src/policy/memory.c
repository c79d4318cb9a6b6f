#include "policy/memory.h"

#include "core/lock.h"
#include "core/log.h"
#include "core/slots.h"

#include <pthread.h>
#include <time.h>

enum { UNSHARED_ATTEMPTS = 16, SWEEP_EVERY = 8 };
#define SLOW_PAUSE_NS 50000l
#define SLOW_WAIT_MAX_NS 20000000l

/* One decision at a time in this process; the record lock sees only processes. Bounded like every wait here. */
static pthread_mutex_t slow_lock = PTHREAD_MUTEX_INITIALIZER;

void memory_after_fork(void)
{
    slow_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

struct sums {
    uint64_t granted, fast, slow;
};

static uint64_t add_clipped(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* fast and slow before total: a request that turns into a grant meanwhile is counted twice, never missed. */
static struct sums sum_slots(const struct region_map *map, int device)
{
    struct sums sums = {0, 0, 0};
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        struct ext_pending *pending = &map->ext->slots[slot].pending[device];
        sums.fast = add_clipped(sums.fast, shared_get(&pending->fast));
        sums.slow = add_clipped(sums.slow, shared_get(&pending->slow));
        sums.granted = add_clipped(sums.granted, shared_get(&map->region->procs[slot].used[device].total));
    }
    return sums;
}

static uint64_t *field_of(struct device_memory *used, enum memory_type type)
{
    return type == MEMORY_CONTEXT ? &used->context_size : type == MEMORY_MODULE ? &used->module_size : &used->data_size;
}

static void book(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    struct region_slot *own = &map->region->procs[map->slot];
    shared_add(&own->used[device].total, bytes);
    shared_add(field_of(&own->used[device], type), bytes);
    shared_add(&own->seqlock, 2);
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit)
{
    return limit == 0 || (used <= limit && bytes <= limit - used);
}

static void pause_briefly(void)
{
    struct timespec span = {0, SLOW_PAUSE_NS};
    nanosleep(&span, NULL);
}

/*
 * Under the lock only fast requests of others can be in the air. They are over within nanoseconds, unless their owner lost
 * the processor or its life: hence the pause, and another look for the dead now and then.
 */
static enum grant decide_slowly(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    for (int look = 0; look * SLOW_PAUSE_NS < SLOW_WAIT_MAX_NS; look++) {
        uint64_t limit = memory_limit(map, device);
        struct sums sums = sum_slots(map, device);
        if (fits(add_clipped(sums.granted, sums.fast), bytes, limit)) {
            book(map, device, type, bytes);
            return GRANTED;
        }
        if (look > 0 && !fits(sums.granted, bytes, limit))
            return REFUSED;
        if (look % SWEEP_EVERY == 0)
            slots_sweep(map);
        else
            pause_briefly();
    }
    return REFUSED;
}

static enum grant reserve_slowly(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    struct ext_pending *pending = &map->ext->slots[map->slot].pending[device];
    shared_add(&pending->slow, bytes);
    shared_sub(&pending->fast, bytes);

    enum grant grant = REFUSED;
    pthread_mutex_lock(&slow_lock);
    int fd = region_fd(map);
    enum lock_verdict verdict = fd >= 0 ? lock_wait(fd, LOCK_SLOTS, 1) : LOCK_TAKEN;
    shared_set(&map->ext->slots[map->slot].lock_wait_ns, lock_longest_wait_ns());
    if (verdict == LOCK_TAKEN)
        grant = decide_slowly(map, device, type, bytes);
    if (verdict == LOCK_TAKEN && fd >= 0)
        lock_release(fd, LOCK_SLOTS, 1);
    pthread_mutex_unlock(&slow_lock);

    shared_sub(&pending->slow, bytes);
    return grant;
}

/*
 * The file of another library has no room for announcements: book first, look, take back. Two requests may refuse each
 * other although one would fit, hence the attempts; above the limit it never goes for longer than a look.
 */
static enum grant reserve_unshared(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    for (int attempt = 0; attempt < UNSHARED_ATTEMPTS; attempt++) {
        uint64_t limit = memory_limit(map, device);
        book(map, device, type, bytes);
        if (limit == 0 || sum_slots(map, device).granted <= limit)
            return GRANTED;
        memory_release(map, device, type, bytes);
        if (attempt == 0)
            slots_sweep(map);
        struct timespec span = {0, 10000 + (attempt * 7919 + map->slot * 104729) % 190000};
        nanosleep(&span, NULL);
    }
    return REFUSED;
}

enum grant memory_reserve(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return REFUSED;
    if (!region_has_books(map)) /* the process ends */
        return GRANTED;
    if (map->shared && !map->ext_shared)
        return reserve_unshared(map, device, type, bytes);

    struct ext_pending *pending = &map->ext->slots[map->slot].pending[device];
    shared_add(&pending->fast, bytes);
    uint64_t limit = memory_limit(map, device);
    struct sums sums = sum_slots(map, device);
    if (limit != 0 && add_clipped(add_clipped(sums.granted, sums.fast), sums.slow) > limit)
        return reserve_slowly(map, device, type, bytes);
    book(map, device, type, bytes);
    shared_sub(&pending->fast, bytes);
    return GRANTED;
}

void memory_charge(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (region_has_books(map))
        book(map, device, type, bytes);
}

static uint64_t take(uint64_t *word, uint64_t bytes)
{
    uint64_t seen = shared_get(word), taken;
    do
        taken = bytes < seen ? bytes : seen;
    while (!shared_swap_if(word, &seen, seen - taken));
    return taken;
}

void memory_release(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (!region_has_books(map))
        return;
    struct region_slot *own = &map->region->procs[map->slot];
    uint64_t of_type = take(field_of(&own->used[device], type), bytes);
    uint64_t of_total = take(&own->used[device].total, bytes);
    if (of_type != bytes || of_total != bytes)
        log_error("device %d: %llu bytes to give back, more than is booked", device, (unsigned long long)bytes);
    shared_add(&own->seqlock, 2);
    /* NVML was asked before this was given back. */
    uint64_t total = shared_get(&own->used[device].total);
    if (shared_peek(&own->monitorused[device]) > total)
        shared_set(&own->monitorused[device], total);
}

uint64_t memory_used(const struct region_map *map, int device)
{
    return sum_slots(map, device).granted;
}

uint64_t memory_used_shown(const struct region_map *map, int device)
{
    uint64_t sum = 0;
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        const struct region_slot *held = &map->region->procs[slot];
        uint64_t booked = shared_get(&held->used[device].total), measured = shared_get(&held->monitorused[device]);
        sum = add_clipped(sum, booked > measured ? booked : measured);
    }
    return sum;
}
