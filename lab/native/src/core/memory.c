/* Device memory: who holds how much of which card. The card's lock decides; a full card first looks for the dead. */
#define _GNU_SOURCE
#include "core.h"

static uint64_t less(uint64_t from, uint64_t by)
{
    return by < from ? from - by : 0;
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

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
    uint64_t bytes = less(RELAXED(&a->bytes), RELAXED(&a->managed_bytes)); /* the bound is of memory that stays on the card */
    return !a->mps_limit_bytes ? UINT64_MAX : bytes < a->mps_limit_bytes ? a->mps_limit_bytes - bytes : 0;
}

/* ---- managed memory: it has no place of its own, and gives way to what has (card lock held) ---- */

/* Of this account from the card to the host. */
static void move_out(struct machine_lane *lane, struct machine_account *a, uint64_t bytes)
{
    SET(&a->host_bytes, a->host_bytes + bytes);
    SET(&a->managed_bytes, less(a->managed_bytes, bytes));
    SET(&a->bytes, less(a->bytes, bytes));
    SET(&lane->used_bytes, less(lane->used_bytes, bytes));
}

/* Who has most of it on the card, and what all have there. */
static struct machine_account *largest(unsigned card, unsigned lane, uint64_t *sum)
{
    struct machine_account *found = NULL;
    *sum = 0;
    for (unsigned slot = 0; slot < the_machine->process_high && slot < MACHINE_PROCESSES; slot++) {
        struct machine_account *a = account_at(card, (int)slot);
        if (LOAD(&the_machine->processes[slot].state) == 0 || a->lane != lane)
            continue;
        *sum += a->managed_bytes;
        if (!found || a->managed_bytes > found->managed_bytes)
            found = a;
    }
    return found;
}

static uint64_t room_of(unsigned card, unsigned lane)
{
    return less(memory_capacity(card, lane), memory_used(card, lane));
}

/* Who has most there gives way first, as if all of it were used alike; nobody does where that is not enough. */
static void make_room(unsigned card, unsigned lane, uint64_t bytes)
{
    uint64_t sum, room;
    struct machine_account *a;
    while ((room = room_of(card, lane)) < bytes && (a = largest(card, lane, &sum)) && a->managed_bytes > 0 && bytes - room <= sum)
        move_out(&card_at(card)->lanes[lane], a, least(a->managed_bytes, BLOCK));
}

static void add(unsigned card, int slot, const struct charge *c)
{
    struct machine_account *a = account_at(card, slot);
    struct machine_lane *lane = &card_at(card)->lanes[a->lane];
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

/* A driver has back what the dead held before anybody can tell that they are gone: the highest count is one of the living. */
static bool try_charge(unsigned card, int slot, const struct charge *c, bool living_only)
{
    unsigned lane = account_at(card, slot)->lane;
    card_lock(card);
    if (living_only)
        make_room(card, lane, c->bytes);
    bool fits = memory_used(card, lane) <= memory_capacity(card, lane) && c->bytes <= room_of(card, lane) && c->bytes <= memory_allowed(card, slot);
    fits &= living_only || lane != 0 || memory_used(card, lane) + c->bytes <= card_at(card)->peak_bytes;
    if (fits)
        add(card, slot, c);
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

/* It takes the room that is left, and from who has more of it there until they have alike; the rest lies on the host. */
void memory_charge_managed(unsigned card, int slot, struct charge c)
{
    struct machine_account *mine = account_at(card, slot), *other;
    uint64_t sum;
    if (room_of(card, mine->lane) < c.bytes)
        process_reap(true);
    card_lock(card);
    unsigned lane = mine->lane;
    while (room_of(card, lane) < c.bytes && (other = largest(card, lane, &sum)) &&
           other->managed_bytes >= mine->managed_bytes + room_of(card, lane) + 2 * BLOCK)
        move_out(&card_at(card)->lanes[lane], other, BLOCK);
    uint64_t stays = least(c.bytes, room_of(card, lane));
    SET(&mine->managed_bytes, mine->managed_bytes + stays);
    SET(&mine->host_bytes, mine->host_bytes + c.bytes - stays);
    c.bytes = stays;
    add(card, slot, &c);
    card_unlock(card);
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

/* What is left moves to where there is room again, so what lies on the host goes first. */
void memory_release_managed(unsigned card, int slot, struct charge c)
{
    struct machine_account *a = account_at(card, slot);
    card_lock(card);
    uint64_t away = least(c.bytes, a->host_bytes);
    SET(&a->host_bytes, a->host_bytes - away);
    SET(&a->managed_bytes, less(a->managed_bytes, c.bytes - away));
    card_unlock(card);
    c.bytes -= away;
    memory_release(card, slot, c);
}
