#include "services/memory_sample.h"

#include "core/after_fork.h"
#include "core/ledger.h"
#include "core/numbers.h"
#include "core/quiet.h"
#include "services/process_state.h"
#include "services/shared_allocation.h"
#include "services/nvml.h"
#include "services/blocks.h"
#include "services/pools.h"

#include <string.h>

enum { LOOKS = 4, PATIENT_LOOKS = 20 };
#define PAUSE_NS 100000l

/* On their way, and what is reserved for them. Changed without any lock. */
static struct {
    uint64_t begun, ended, expected;
} moves[REGION_DEVICES];
FORGET_IN_CHILD(moves);

void moves_begin(int device)
{
    shared_add(&moves[device].begun, 1);
}

void moves_end(int device)
{
    shared_add(&moves[device].ended, 1);
}

void moves_expect(int device, int64_t by)
{
    shared_add(&moves[device].expected, (uint64_t)by);
}

uint64_t moves_expected(int device)
{
    return shared_get(&moves[device].expected);
}

/* Nothing is on its way but what the caller itself began, and nothing has begun since. */
static bool nothing_moves(int device, uint64_t begun, uint64_t own)
{
    return shared_get(&moves[device].begun) == begun && shared_get(&moves[device].ended) + own == begun;
}

/* Shared allocations are no data where there is a ledger: *certain says whether it is known which of them the driver counts as this process's. */
static uint64_t booked(const struct device_memory *used, int device, bool *certain)
{
    *certain = true;
    uint64_t shared_allocations = process_state.map.ledger != NULL ? ledger_shared_counted(&process_state.map, device, certain) : 0;
    return sub_u64(shared_get(&used->context_size) + shared_get(&used->data_size) + shared_allocations, shared_allocation_beside_driver(device));
}

/* The slot may be emptied meanwhile because the process ends: either that comes later, or it is seen here. */
static void tell_measured(struct region_slot *own, int device, uint64_t bytes)
{
    shared_set(&own->monitorused[device], bytes);
    if (shared_get(&process_state.map.leaving))
        shared_set(&own->monitorused[device], 0);
}

/*
 * Bookings go on meanwhile: allocations are booked before they happen and frees after, so the larger of the sums before and after can
 * only make the difference too small, unless something came and went in between. Then it is looked at again, and the smallest of the
 * differences counts: nothing is ever booked twice. It is exact where nobody was between books and driver all the while; else what is
 * there may be more.
 */
static struct memory_sample look(int device, struct region_slot *own, int looks)
{
    struct memory_sample seen = {.known = true, .net = INT64_MAX};
    for (int count = 0; count < looks; count++) {
        bool quiet = underway_nobody_else(device);
        seen.stamp = shared_get(&own->seqlock);
        bool certain, certain_after;
        uint64_t before = booked(&own->used[device], device, &certain), measured = listed_bytes(device);
        if (measured == 0)
            return (struct memory_sample){.answer = SAMPLED_NOTHING};
        uint64_t after = booked(&own->used[device], device, &certain_after);
        seen.most = sub_u64(measured, sub_u64(before, suballocation_paid_for(device)));
        seen.calm = quiet && certain && certain_after && underway_nobody_else(device) && before == after;
        bool exact = seen.calm && shared_get(&own->seqlock) == seen.stamp;
        int64_t net = (int64_t)(measured - (before > after ? before : after));
        seen.net = net < seen.net || seen.calm ? net : seen.net;
        seen.answer = exact ? SAMPLED_EXACTLY : SAMPLED_AT_LEAST;
        tell_measured(own, device, measured);
        if (exact || (seen.calm && count >= LOOKS) || (looks == LOOKS && shared_get(&own->seqlock) == seen.stamp))
            break;
        if (looks > LOOKS)
            quiet_sleep(PAUSE_NS);
    }
    return seen;
}

/*
 * Not exact where a module is on the card and not yet in the books, or the other way round, for another thread loads or unloads it; nor
 * where a pool may have given back what is still booked, at a synchronisation of the program: whoever may call the driver asks, before
 * and after.
 */
struct memory_sample sight(int device, enum asking asking)
{
    struct memory_sample seen = {.answer = SAMPLED_NOTHING};
    uint64_t begun = shared_get(&moves[device].begun);
    bool asks = asking != BY_THE_WATCH, current = asks || !pools_any();
    if (asks)
        pools_reconcile(device, false);
    if (pools_pause()) { /* none is between the growth of its reserve and its booking */
        seen = look(device, region_own(&process_state.map), asking == AFTER_A_MOVE ? PATIENT_LOOKS : LOOKS);
        pools_go_on();
    }
    bool alone = nothing_moves(device, begun, asking == AFTER_A_MOVE);
    seen.calm = seen.calm && current && !(asks && pools_reconcile(device, false));
    if (seen.answer == SAMPLED_EXACTLY && !(seen.calm && alone))
        seen.answer = SAMPLED_AT_LEAST;
    return seen;
}
