#include "policy/fair.h"

#include "core/slots.h"
#include "policy/budget.h"

#define AHEAD_NS 1000000ll        /* the lead that nobody minds: it saves turns after each short kernel */
#define ASKS_FOR_NS 20000000ull   /* after a launch its process is taken to want another one */
#define SHORTEST_WAIT_NS 20000ll
#define LONGEST_WAIT_NS 20000000ll
#define LONGEST_CLAIM_NS 200000000ull /* beyond it a time is of a clock that began anew, or damage */

static struct fair_use *use_of(struct region_map *map, int slot, int device)
{
    return &map->fair->uses[slot][device];
}

static bool asks(const struct fair_use *use, uint64_t now)
{
    uint64_t until = shared_peek(&use->asks_until_ns);
    return until > now && until < now + LONGEST_CLAIM_NS;
}

static void raise(int64_t *word, int64_t least)
{
    int64_t seen = shared_get(word);
    while (seen < least && !shared_swap_if(word, &seen, least))
        ;
}

void fair_used(struct region_map *map, int device, int64_t ns)
{
    if (map->fair != NULL && map->slot >= 0)
        shared_add(&use_of(map, map->slot, device)->used_ns, ns);
}

void fair_asks(struct region_map *map, int device, uint64_t until)
{
    if (map->fair != NULL && map->slot >= 0)
        shared_set(&use_of(map, map->slot, device)->asks_until_ns, until + ASKS_FOR_NS);
}

/* The least that any of those who ask has used. */
static int64_t least_used(struct region_map *map, int device, int64_t own, uint64_t now)
{
    int64_t least = own;
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        const struct fair_use *use = use_of(map, slot, device);
        if (slot == map->slot || !asks(use, now))
            continue;
        int64_t used = shared_peek(&use->used_ns);
        least = used < least ? used : least;
    }
    return least;
}

/* How much more the budget saves up before what nobody takes would be lost soon: then whoever is there may have it. */
static int64_t room(const struct ext_device *device, uint64_t percent)
{
    int64_t balance;
    bool absurd = __builtin_sub_overflow(shared_get(&device->credit_ns), shared_get(&device->charged_ns), &balance);
    return absurd ? 0 : budget_cap(percent) / 2 - balance;
}

static uint64_t within(int64_t wait)
{
    return wait < SHORTEST_WAIT_NS ? SHORTEST_WAIT_NS : wait < LONGEST_WAIT_NS ? (uint64_t)wait : LONGEST_WAIT_NS;
}

uint64_t fair_wait_ns(struct region_map *map, int device, uint64_t percent, uint64_t now)
{
    if (map->fair == NULL || map->slot < 0 || percent == 0)
        return 0;
    struct ext_device *shared = &map->ext->devices[device];
    struct fair_use *own = use_of(map, map->slot, device);
    if (!asks(own, now)) /* who has asked all the time keeps what measuring gives back */
        raise(&own->used_ns, shared_get(&shared->fair_ns));
    int64_t used = shared_get(&own->used_ns), least = least_used(map, device, used, now), lead = used - least - AHEAD_NS;
    int64_t saves = room(shared, percent);
    bool goes = lead <= 0 || saves < 0;
    raise(&shared->fair_ns, goes && lead > 0 ? used - AHEAD_NS : least);
    lead = lead < LONGEST_WAIT_NS ? lead / 2 : LONGEST_WAIT_NS; /* half of what they need: the other half is looked at again */
    saves = saves < LONGEST_WAIT_NS ? saves : LONGEST_WAIT_NS;
    uint64_t wait = goes ? 0 : within((lead < saves ? lead : saves) * 100 / (int64_t)percent);
    fair_asks(map, device, now + wait);
    return wait;
}
