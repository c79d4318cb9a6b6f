#include "policy/memory.h"

#include "core/log.h"
#include "core/numbers.h"
#include "core/quiet.h"
#include "core/shared_allocations.h"
#include "core/ledger.h"
#include "core/slots.h"
#include "core/region_lock.h"
#include "core/waits.h"

enum { UNSHARED_ATTEMPTS = 16, SWEEP_EVERY = 8 };
#define PAUSE_NS 50000l

struct sums {
    uint64_t granted, fast, slow;
};

/*
 * fast and slow before total: a request that turns into a grant meanwhile is counted twice, never missed. Who leaves moves its total
 * the other way, so of those the announced is read once more: it is granted, and stays so until they are gone.
 */
static void add_slot(const struct region_map *map, int slot, int device, struct sums *sums)
{
    const struct ext_slot *ours = &map->ext->slots[slot];
    const struct ext_pending *pending = &ours->pending[device];
    uint64_t fast = shared_get(&pending->fast), slow = shared_get(&pending->slow);
    uint64_t granted = shared_get(&map->region->procs[slot].used[device].total);
    if (__builtin_expect((shared_get(&ours->flags) & EXT_SLOT_LEAVING) != 0, 0)) {
        granted = add_u64(granted, shared_get(&pending->fast));
        fast = slow = 0;
    }
    sums->fast = add_u64(sums->fast, fast);
    sums->slow = add_u64(sums->slow, slow);
    sums->granted = add_u64(sums->granted, granted);
}

static struct sums sum_slots(const struct region_map *map, int device)
{
    struct sums sums = {0, 0, 0};
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++)
        add_slot(map, slot, device, &sums);
    return sums;
}

static uint64_t *field_of(struct device_memory *used, enum memory_type type)
{
    return type == MEMORY_CONTEXT ? &used->context_size : type == MEMORY_MODULE ? &used->module_size : &used->data_size;
}

static void book_in(struct region_slot *slot, int device, enum memory_type type, uint64_t bytes)
{
    shared_add(&slot->used[device].total, bytes);
    shared_add(field_of(&slot->used[device], type), bytes);
    shared_add(&slot->seqlock, 2);
}

/* Tell the slot as well where this process's books are its own. */
static void book(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (map->ledger != NULL)
        book_in(&map->own, device, type, bytes);
    book_in(&map->region->procs[map->slot], device, type, bytes);
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit)
{
    return limit == 0 || (used <= limit && bytes <= limit - used);
}

static uint64_t limit_of(const struct region_map *map, int device, enum memory_type type)
{
    return type == MEMORY_THAT_MOVES ? memory_most(map, device) : memory_limit(map, device);
}

enum look { FITS, NEVER_FITS, UNDECIDED };

/* What others ask for on the fast path, and nobody knows yet whether they get it, is counted as theirs for a grant only. */
static enum look look_at(const struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    uint64_t limit = limit_of(map, device, type);
    struct sums sums = sum_slots(map, device);
    if (fits(add_u64(sums.granted, sums.fast), bytes, limit))
        return FITS;
    return fits(sums.granted, bytes, limit) ? UNDECIDED : NEVER_FITS;
}

/* One at a time, for of two that fit alone only one may be granted. What has changed meanwhile is looked at again. */
static bool grant_under_lock(struct region_map *map, int device, enum memory_type type, uint64_t bytes, struct wait *wait)
{
    uint32_t *lock = &map->ext->memory_locks[device];
    if (!region_lock_take(map, lock, wait))
        return false;
    bool fit = look_at(map, device, type, bytes) == FITS;
    if (fit)
        book(map, device, type, bytes);
    region_lock_give(lock);
    return fit;
}

/*
 * Others may be about to get what is left, on the fast path. They are done within nanoseconds, unless their owner lost the
 * processor or its life: hence the pauses, in which nobody's turn is held up, and another look for the dead now and then.
 */
static bool decide(struct region_map *map, int device, enum memory_type type, uint64_t bytes, struct wait *wait, enum grant *grant)
{
    bool swept = false;
    for (int round = 0; wait->begun_ns == 0 || !wait_is_over(wait); round++) {
        enum look found = look_at(map, device, type, bytes);
        bool granted = found == FITS && grant_under_lock(map, device, type, bytes, wait);
        if (granted || (found == NEVER_FITS && swept)) {
            *grant = granted ? GRANTED : REFUSED;
            return true;
        }
        if (found == NEVER_FITS || (found == UNDECIDED && round % SWEEP_EVERY == SWEEP_EVERY - 1))
            swept = shared_allocations_sweep(map) >= 0;
        if (found == UNDECIDED || (found == NEVER_FITS && !swept)) {
            if (wait->begun_ns == 0)
                *wait = wait_begin();
            quiet_sleep(PAUSE_NS);
        }
    }
    return false;
}

static enum grant reserve_slowly(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    struct ext_pending *pending = &map->ext->slots[map->slot].pending[device];
    struct wait wait = {0, 0};
    enum grant grant = REFUSED;
    shared_add(&pending->slow, bytes);
    shared_sub(&pending->fast, bytes);
    bool decided = decide(map, device, type, bytes, &wait, &grant);
    shared_sub(&pending->slow, bytes);
    if (wait.begun_ns != 0)
        wait_end(&wait, !decided);
    return grant;
}

/*
 * The file of another library has no room for announcements: book first, look, take back. Two requests may refuse each
 * other although one would fit, hence the attempts; above the limit it never goes for longer than a look.
 */
static enum grant reserve_unshared(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    for (int attempt = 0; attempt < UNSHARED_ATTEMPTS; attempt++) {
        uint64_t limit = limit_of(map, device, type);
        book(map, device, type, bytes);
        if (limit == 0 || sum_slots(map, device).granted <= limit)
            return GRANTED;
        memory_release(map, device, type, bytes);
        if (attempt == 0)
            shared_allocations_sweep(map);
        quiet_sleep(10000 + (attempt * 7919 + map->slot * 104729) % 190000);
    }
    return REFUSED;
}

/* Under the lock. What others ask for, and nobody knows yet whether they get it, is theirs for a grant only, as above. */
static enum look decide_by_ledger(struct region_map *map, int device, uint64_t bytes, uint64_t limit)
{
    if (ledger_request(map, device, bytes, limit))
        return FITS;
    return fits(ledger_sum(map, device, false), bytes, limit) ? UNDECIDED : NEVER_FITS;
}

static bool reserve_by_ledger_slowly(struct region_map *map, int device, uint64_t bytes, uint64_t limit)
{
    struct wait wait = {0, 0};
    enum look found = UNDECIDED;
    while (found == UNDECIDED && (wait.begun_ns == 0 || !wait_is_over(&wait)) && ledger_lock_take(map, device)) {
        found = decide_by_ledger(map, device, bytes, limit);
        ledger_lock_give(map, device);
        if (found == UNDECIDED && wait.begun_ns == 0)
            wait = wait_begin();
        if (found == UNDECIDED)
            quiet_sleep(PAUSE_NS);
    }
    if (wait.begun_ns != 0)
        wait_end(&wait, found == UNDECIDED);
    return found == FITS;
}

static void charge_in_ledger(struct region_map *map, int device, uint64_t bytes)
{
    if (map->ledger != NULL)
        ledger_request(map, device, bytes, 0);
}

/* Announce, look, grant, as with the words of the region, but by what nobody can write for another (core/ledger.h). */
static enum grant reserve_by_ledger(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    uint64_t limit = limit_of(map, device, type);
    if (limit == 0)
        charge_in_ledger(map, device, bytes);
    else if (!ledger_request(map, device, bytes, limit) && !reserve_by_ledger_slowly(map, device, bytes, limit))
        return REFUSED;
    book(map, device, type, bytes);
    return GRANTED;
}

enum grant memory_reserve(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return REFUSED;
    if (!region_has_books(map)) /* the process ends: what it holds stays booked until it is gone, and it gets no more */
        return REFUSED;
    if (map->ledger != NULL)
        return reserve_by_ledger(map, device, type, bytes);
    if (map->page != NULL && shared_peek(&map->region->procs[map->slot].pid) == 0) /* the books were erased: nobody knows who holds what */
        return REFUSED;
    if (map->shared && !map->ext_shared)
        return reserve_unshared(map, device, type, bytes);

    struct ext_pending *pending = &map->ext->slots[map->slot].pending[device];
    shared_add(&pending->fast, bytes);
    uint64_t limit = limit_of(map, device, type);
    struct sums sums = sum_slots(map, device);
    if (limit != 0 && add_u64(add_u64(sums.granted, sums.fast), sums.slow) > limit)
        return reserve_slowly(map, device, type, bytes);
    book(map, device, type, bytes);
    shared_sub(&pending->fast, bytes);
    return GRANTED;
}

void memory_charge(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (!region_has_books(map))
        return;
    charge_in_ledger(map, device, bytes);
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

/* How much of it was there. */
static uint64_t take_out_of(struct region_slot *slot, int device, enum memory_type type, uint64_t bytes)
{
    uint64_t of_type = take(field_of(&slot->used[device], type), bytes);
    uint64_t of_total = take(&slot->used[device].total, bytes);
    shared_add(&slot->seqlock, 2);
    /* NVML was asked before this was given back. */
    uint64_t total = shared_get(&slot->used[device].total);
    if (shared_peek(&slot->monitorused[device]) > total)
        shared_set(&slot->monitorused[device], total);
    return of_type < of_total ? of_type : of_total;
}

void memory_release(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (!region_has_books(map))
        return;
    uint64_t taken = take_out_of(region_own(map), device, type, bytes);
    if (taken != bytes)
        log_error("device %d: %llu bytes to give back, more than is booked", device, (unsigned long long)bytes);
    if (map->ledger != NULL) {
        ledger_give_back(map, device, taken);
        take_out_of(&map->region->procs[map->slot], device, type, bytes);
    }
}

static void rename_in(struct region_slot *slot, int device, enum memory_type from, enum memory_type to, uint64_t bytes)
{
    shared_add(field_of(&slot->used[device], to), take(field_of(&slot->used[device], from), bytes));
    shared_add(&slot->seqlock, 2);
}

void memory_rename(struct region_map *map, int device, enum memory_type from, enum memory_type to, uint64_t bytes)
{
    if (!region_has_books(map))
        return;
    rename_in(region_own(map), device, from, to, bytes);
    if (map->ledger != NULL)
        rename_in(&map->region->procs[map->slot], device, from, to, bytes);
}

uint64_t memory_used(struct region_map *map, int device)
{
    return map->ledger != NULL ? ledger_sum(map, device, false) : sum_slots(map, device).granted;
}

/* What others measured of themselves is told in bytes that anybody may write. */
static uint64_t shown_by_ledger(struct region_map *map, int device)
{
    uint64_t booked = shared_get(&map->own.used[device].total), measured = shared_get(&map->own.monitorused[device]);
    return add_u64(ledger_sum(map, device, false), measured > booked ? measured - booked : 0);
}

uint64_t memory_used_shown(struct region_map *map, int device)
{
    if (map->ledger != NULL)
        return shown_by_ledger(map, device);
    uint64_t sum = 0;
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        struct sums booked = {0, 0, 0};
        add_slot(map, slot, device, &booked);
        uint64_t measured = shared_get(&map->region->procs[slot].monitorused[device]);
        sum = add_u64(sum, booked.granted > measured ? booked.granted : measured);
    }
    return sum;
}
