#include "core/shared_allocations.h"

#include "core/region_map.h"
#include "core/ledger.h"
#include "core/republish.h"
#include "core/slots.h"
#include "core/region_lock.h"
#include "core/waits.h"

#include <string.h>

enum { ATTEMPTS = 20 };

static bool take_lock(struct region_map *map)
{
    struct wait wait = {0, 0};
    if (map->shared_allocations == NULL || map->slot < 0)
        return false;
    bool taken = region_lock_take(map, &map->shared_allocations->lock, &wait);
    if (wait.begun_ns != 0)
        wait_end(&wait, !taken);
    return taken;
}

static void charge(struct region_map *map, const struct shared_allocation *shared_allocation)
{
    struct region_slot *payer = &map->region->procs[shared_allocation->holders[0]];
    shared_add(&payer->used[shared_allocation->device].total, shared_allocation->bytes);
    shared_add(&payer->used[shared_allocation->device].data_size, shared_allocation->bytes);
    shared_add(&payer->seqlock, 2);
}

/*
 * Who has the lock may be without a processor. Nothing can be refused any more for what is exported or imported by then, and what the table does
 * not know is free as soon as one of its holders lets go.
 */
static bool take_lock_patiently(struct region_map *map)
{
    bool taken = false;
    for (int attempt = 0; attempt < ATTEMPTS && !taken && map->shared_allocations != NULL && map->slot >= 0; attempt++)
        taken = take_lock(map);
    return taken;
}

/* Under the lock. The next pays before the one who did gives back. */
static void take_out(struct region_map *map, struct shared_allocation *shared_allocation, int at)
{
    memmove(&shared_allocation->holders[at], &shared_allocation->holders[at + 1], (size_t)(shared_allocation->count - at - 1) * sizeof *shared_allocation->holders);
    shared_allocation->count--;
    if (at == 0 && shared_allocation->count > 0)
        charge(map, shared_allocation);
}

uint32_t shared_allocation_new(struct region_map *map, int device, uint64_t bytes, uint64_t descriptors, uint64_t words)
{
    if (map->ledger != NULL)
        return ledger_shared_new(map, device, bytes, descriptors, words);
    if (!take_lock_patiently(map))
        return 0;
    uint32_t place = 0, high = shared_allocations_places(map);
    while (place < high && shared_allocation_at(map, place) != NULL)
        place++;
    if (place < SHARED_ALLOCATIONS) {
        map->shared_allocations->shared_allocations[place] = (struct shared_allocation){.descriptors = descriptors, .words = words, .bytes = bytes, .device = (int16_t)device,
                                                    .count = 1, .holders = {(uint16_t)map->slot}};
        if (place == high)
            shared_set(&map->shared_allocations->high, place + 1);
    }
    region_lock_give(&map->shared_allocations->lock);
    return place < SHARED_ALLOCATIONS ? place + 1 : 0;
}

uint32_t shared_allocation_join(struct region_map *map, const struct shared_allocation_search *search, struct shared_allocation *what)
{
    if (map->ledger != NULL)
        return ledger_shared_join(map, search->name(search->sought), what);
    if (!take_lock_patiently(map))
        return 0;
    uint32_t found = 0;
    for (uint32_t place = 0, high = shared_allocations_places(map); place < high && found == 0; place++) {
        struct shared_allocation *shared_allocation = shared_allocation_at(map, place);
        if (shared_allocation == NULL || !search->is(shared_allocation, search->sought))
            continue;
        bool there = shared_allocation_place_of(shared_allocation, map->slot) >= 0;
        if (!there && shared_allocation->count == SHARED_ALLOCATION_HOLDERS)
            break;
        if (!there)
            shared_allocation->holders[shared_allocation->count++] = (uint16_t)map->slot;
        *what = *shared_allocation;
        found = place + 1;
    }
    region_lock_give(&map->shared_allocations->lock);
    return found;
}

bool shared_allocation_leave(struct region_map *map, uint32_t number, struct shared_allocation *what)
{
    bool paid = false;
    if (map->ledger != NULL) {
        ledger_shared_leave(map, number, what);
        return false;
    }
    if (!take_lock_patiently(map))
        return false; /* it stays booked until the process ends */
    struct shared_allocation *shared_allocation = shared_allocation_at(map, number - 1);
    int at = shared_allocation != NULL ? shared_allocation_place_of(shared_allocation, map->slot) : -1;
    if (at >= 0) {
        *what = *shared_allocation;
        paid = at == 0;
        take_out(map, shared_allocation, at);
    }
    region_lock_give(&map->shared_allocations->lock);
    return paid;
}

int shared_allocation_export(struct region_map *map, uint32_t number, uint64_t *descriptors)
{
    int export = -1;
    if (map->ledger != NULL)
        return ledger_shared_export(map, number, descriptors);
    if (!take_lock_patiently(map))
        return -1;
    struct shared_allocation *shared_allocation = shared_allocation_at(map, number - 1);
    if (shared_allocation != NULL && shared_allocation->descriptors != 0 && shared_allocation->exports < SHARED_ALLOCATION_EXPORTS) {
        export = (int)shared_allocation->exports++;
        *descriptors = shared_allocation->descriptors;
    }
    region_lock_give(&map->shared_allocations->lock);
    return export;
}

bool shared_allocation_name(struct region_map *map, uint32_t number, uint64_t words)
{
    bool named = false;
    if (map->ledger != NULL)
        return ledger_shared_name(map, number, words);
    if (!take_lock_patiently(map))
        return false;
    struct shared_allocation *shared_allocation = shared_allocation_at(map, number - 1);
    if (shared_allocation != NULL && shared_allocation->words == 0)
        shared_allocation->words = words;
    named = shared_allocation != NULL && shared_allocation->words == words;
    region_lock_give(&map->shared_allocations->lock);
    return named;
}

static void take_out_the_dead(struct region_map *map)
{
    for (uint32_t place = 0, high = shared_allocations_places(map); place < high; place++)
        for (int at = SHARED_ALLOCATION_HOLDERS - 1; at >= 0; at--) { /* from the last: who pays is charged once */
            struct shared_allocation *shared_allocation = shared_allocation_at(map, place);
            if (shared_allocation == NULL || at >= shared_allocation->count)
                continue;
            int slot = shared_allocation->holders[at];
            if (slot != map->slot && (slot_is_free(map, slot) || slot_is_dead(map, slot)))
                take_out(map, shared_allocation, at);
        }
}

int shared_allocations_sweep(struct region_map *map)
{
    bool any = map->shared_allocations != NULL && shared_allocations_places(map) > 0, taken = any && take_lock(map);
    if (taken) {
        take_out_the_dead(map);
        region_lock_give(&map->shared_allocations->lock);
    }
    int emptied = slots_sweep(map);
    return any && !taken ? -1 : emptied;
}

/* Nobody else is there yet, or has the lock under which regions are made. */
void shared_allocations_format(struct region_map *map, bool (*keep)(int slot, void *data), void *data)
{
    shared_set(&map->shared_allocations->lock, 0);
    for (uint32_t place = 0, high = shared_allocations_places(map); place < high; place++)
        for (int at = SHARED_ALLOCATION_HOLDERS - 1; at >= 0; at--) {
            struct shared_allocation *shared_allocation = shared_allocation_at(map, place);
            if (shared_allocation != NULL && at < shared_allocation->count && (keep == NULL || !keep(shared_allocation->holders[at], data)))
                take_out(map, shared_allocation, at);
        }
}

void shared_allocations_leave_slot(struct region_map *map)
{
    slot_republish(map);
    bool taken = map->slot >= 0 && shared_allocations_hold(map, map->slot) && take_lock(map);
    slot_leave(map);
    if (taken)
        region_lock_give(&map->shared_allocations->lock);
}
