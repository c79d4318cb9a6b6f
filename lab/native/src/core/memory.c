/* Device memory: who holds how much of which card. The card's lock decides; a full card first looks for the dead. */
#define _GNU_SOURCE
#include "core.h"

uint64_t memory_capacity(unsigned card, unsigned lane)
{
    const struct machine_card *c = card_at(card);
    if (lane > 0) {
        const struct machine_gpu_instance *gi = &c->instances[lane - 1];
        return gi->used && gi->profile < MACHINE_PROFILES ? c->profiles[gi->profile].memory_mib * MIB : 0;
    }
    uint64_t taken = c->reserved_bytes + RELAXED(&c->stranger_bytes);
    return taken < c->memory_bytes ? c->memory_bytes - taken : 0;
}

uint64_t memory_used(unsigned card, unsigned lane)
{
    return LOAD(&card_at(card)->lanes[lane].used_bytes);
}

uint64_t memory_allowed(unsigned card, int slot)
{
    const struct machine_account *a = account_at(card, slot);
    uint64_t bytes = RELAXED(&a->bytes);
    return !a->mps_limit_bytes ? UINT64_MAX : bytes < a->mps_limit_bytes ? a->mps_limit_bytes - bytes : 0;
}

/* A driver has back what the dead held before anybody can tell that they are gone: the highest count is one of the living. */
static bool try_charge(unsigned card, int slot, const struct charge *c, bool living_only)
{
    struct machine_account *a = account_at(card, slot);
    card_lock(card);
    struct machine_lane *lane = &card_at(card)->lanes[a->lane];
    uint64_t capacity = memory_capacity(card, a->lane);
    bool fits = lane->used_bytes <= capacity && c->bytes <= capacity - lane->used_bytes && c->bytes <= memory_allowed(card, slot);
    fits &= living_only || a->lane != 0 || lane->used_bytes + c->bytes <= card_at(card)->peak_bytes;
    if (fits) {
        SET(&a->bytes, a->bytes + c->bytes);
        SET(&lane->used_bytes, lane->used_bytes + c->bytes);
        if (a->lane == 0 && lane->used_bytes > card_at(card)->peak_bytes)
            SET(&card_at(card)->peak_bytes, lane->used_bytes);
        if (a->bytes > a->peak_bytes)
            SET(&a->peak_bytes, a->bytes);
        ADD(&a->requested_bytes, c->requested); /* pools add theirs without the lock */
        SET(&a->allocations, a->allocations + c->allocations);
        SET(&a->contexts, a->contexts + c->contexts);
        SET(&a->context_bytes, a->context_bytes + c->context_bytes);
    }
    card_unlock(card);
    return fits;
}

bool memory_charge(unsigned card, int slot, struct charge c)
{
    if (try_charge(card, slot, &c, false))
        return true;
    process_reap(true);
    return try_charge(card, slot, &c, true);
}

static uint64_t less(uint64_t from, uint64_t by)
{
    return by < from ? from - by : 0;
}

void memory_release(unsigned card, int slot, struct charge c)
{
    struct machine_account *a = account_at(card, slot);
    card_lock(card);
    struct machine_lane *lane = &card_at(card)->lanes[a->lane];
    SET(&a->bytes, less(a->bytes, c.bytes));
    SET(&lane->used_bytes, less(lane->used_bytes, c.bytes));
    __atomic_fetch_sub(&a->requested_bytes, c.requested, __ATOMIC_RELAXED);
    SET(&a->allocations, less(a->allocations, c.allocations));
    SET(&a->contexts, (uint32_t)less(a->contexts, c.contexts));
    SET(&a->context_bytes, less(a->context_bytes, c.context_bytes));
    card_unlock(card);
}
