#include "services/waiting.h"

#include "policy/arbiter.h"
#include "policy/budget.h"
#include "policy/fair.h"

#include <unistd.h>

#define LONGEST_NAP_NS 50000000ull   /* limit, policy and switch are looked at again after it */
#define QUIET_WAIT_NS 20000000ull    /* how long a sample waits for others to be done */
#define NEIGHBOUR_WAIT_NS 250000000ull /* how long a first measurement waits for the container's others */
#define YIELD_LENGTHS 4
#define BURST_FOLLOWERS 3
#define PROBE_CREDIT_NS 5000000ll     /* debt per percent of limit on which something unknown may start: half a second's share */
#define PROBE_WAIT_NS 3000000000ull  /* how long it is waited for, at most once per kind of kernel */

uint64_t launch_limit_shared_evenly(uint64_t limit)
{
    uint64_t processes = 0;
    for (int slot = 0; slot < REGION_SLOTS && slot < shared_peek(&guest.map.region->proc_num); slot++)
        processes += shared_peek(&guest.map.region->procs[slot].status) != SLOT_FREE;
    return processes > limit ? 1 : limit / (processes > 0 ? processes : 1);
}

bool launch_capturing(CUstream stream, bool per_thread)
{
    int status = 0;
    CUresult (*ask)(CUstream, int *) = per_thread && real_table.cuStreamIsCapturing_ptsz != NULL
                                           ? real_table.cuStreamIsCapturing_ptsz
                                           : real_table.cuStreamIsCapturing;
    return ask != NULL && INSIDE(ask(stream, &status)) == CUDA_SUCCESS && status != 0;
}

uint64_t nap(uint64_t ns)
{
    ns = ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS;
    policy_clock.sleep(ns);
    return ns;
}

uint64_t rest(int index, uint64_t now, uint64_t wait)
{
    sampler_harvest(now);
    uint64_t settles = activity_settle(index, now, sampler_awaits(index));
    uint64_t slept = nap(settles > 0 && settles < wait ? settles : wait);
    if (gate_closed(&guest.map))
        gate_wait(&guest.map);
    return slept;
}

int64_t launch_charge(int index, int64_t cost)
{
    fair_used(&guest.map, index, cost);
    return budget_charge(&guest.map.ext->devices[index], cost);
}

void launch_correct(int index, int64_t difference)
{
    fair_used(&guest.map, index, difference);
    budget_correct(&guest.map.ext->devices[index], difference);
}

bool await_fair(int index, const struct launch *launch)
{
    struct ext_device *device = &guest.map.ext->devices[index];
    uint64_t slept = 0, limit, wait;
    for (;;) {
        uint64_t now = policy_clock.now();
        limit = launch_limit_of(index);
        if (limit == 0)
            break;
        budget_refill(device, limit, now);
        if ((wait = fair_wait_ns(&guest.map, index, limit, now)) == 0)
            break;
        if (launch_capturing(launch->stream, launch->per_thread))
            return false;
        slept += rest(index, now, wait);
    }
    if (slept > 0)
        shared_add(&device->throttled_ns, slept);
    return true;
}

/* What other processes of the container have queued runs out; new work of theirs waits for the answer (yield_to_probe). */
void await_neighbours(int index)
{
    uint64_t waited = 0, now = policy_clock.now(), clear;
    while (waited < NEIGHBOUR_WAIT_NS && (clear = activity_neighbours_clear_at(index, now)) > now) {
        waited += nap(clear - now < NEIGHBOUR_WAIT_NS ? clear - now : NEIGHBOUR_WAIT_NS);
        now = policy_clock.now();
    }
}

/*
 * A measurement beside others would take their slices for the kernel's own time, and all would be billed too much. So long kernels
 * let the first one of another process answer, for a few times their own length at most.
 */
void yield_to_probe(struct ext_device *device, int64_t estimate)
{
    int64_t waited = 0;
    while (estimate >= COST_LONG_NS && waited < YIELD_LENGTHS * estimate && budget_probe_runs(device, policy_clock.now())) {
        sampler_harvest(policy_clock.now()); /* it may be our own that waits to be read */
        waited += (int64_t)nap((uint64_t)estimate / 16);
    }
}

/* Somebody's right lapsed, and nothing unknown has answered since. */
static int unanswered[REGION_DEVICES];

void probe_answered(int index)
{
    __atomic_store_n(&unanswered[index], 0, __ATOMIC_RELAXED);
}

/*
 * A kernel nobody knows could last a second: it waits until every other unknown one of the container has answered. Bounded,
 * and once per kind of kernel, for the earlier one may itself be waiting for what this thread does next. One that lasts longer than
 * its right, as kernels that stay on the card do, costs its container that time once, and not each kind that comes meanwhile.
 */
bool await_probe(int index, struct cost *cost)
{
    struct ext_device *device = &guest.map.ext->devices[index];
    uint64_t step = 20000, waited = 0;
    if (__atomic_load_n(&unanswered[index], __ATOMIC_RELAXED))
        return false;
    while (waited < PROBE_WAIT_NS && __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0) {
        uint64_t now = policy_clock.now();
        sampler_harvest(now);
        if (__atomic_load_n(&cost->samples, __ATOMIC_RELAXED) > 0)
            return false;
        bool held = shared_peek(&device->probe_until_ns) != 0;
        if (budget_probe_begin(device, now, PROBE_NS)) {
            if (held && waited > 0)
                __atomic_store_n(&unanswered[index], 1, __ATOMIC_RELAXED);
            return true;
        }
        waited += nap(step);
        step = step < 1000000 ? step + step / 4 : step;
    }
    if (waited >= PROBE_WAIT_NS)
        __atomic_store_n(&cost->patience_lost, 1, __ATOMIC_RELAXED);
    return false;
}

int64_t burst_ahead(int index, const struct cost *cost, uint64_t limit, uint64_t now)
{
    if (!cost_is_unsure(cost) || activity_sharers(index, now, now) <= 1)
        return 0;
    int64_t followers = BURST_FOLLOWERS * (int64_t)cost_estimate(cost), most = budget_cap(limit) / 2;
    return followers < most ? followers : most;
}

/* Sleeps off the debt. Whatever changes meanwhile, limit, policy, switch or what others owe, is seen after each nap. */
void await_turn(struct ext_device *device, int index, int64_t ticket, bool first, int64_t ahead)
{
    uint64_t slept = 0;
    for (;;) {
        uint64_t limit = launch_limit_of(index), now = policy_clock.now();
        if (limit == 0)
            break;
        budget_refill(device, limit, now);
        if (first)
            budget_probe_renew(device, now + PROBE_NS);
        int64_t until = first ? ticket - (int64_t)limit * PROBE_CREDIT_NS : ticket + ahead;
        if (budget_allows(device, until))
            break;
        uint64_t wait = budget_wait_ns(device, limit, until);
        fair_asks(&guest.map, index, now + (wait < LONGEST_NAP_NS ? wait : LONGEST_NAP_NS));
        slept += rest(index, now, wait);
    }
    if (slept > 0)
        shared_add(&device->throttled_ns, slept);
}

/* Tenants whose limits fill the card take turns, where that is asked for. Patience is bounded: the file is anybody's. */
void await_window(int index, uint64_t limit)
{
    uint64_t waited = 0, wait, now;
    while (waited < ARBITER_PATIENCE_NS && (wait = activity_ask(index, now = policy_clock.now(), limit)) > 0)
        waited += rest(index, now, wait);
}

/*
 * A kind of kernel that was only ever measured beside others may meet them in step every time, and would be billed for
 * their slices for ever. Its next sample waits for a quiet moment.
 */
uint64_t await_quiet(int index, const struct cost *cost, uint64_t now)
{
    static uint64_t again_ns; /* beside somebody who is never done, each sample would wait in vain: a twentieth of the time does */
    if (cost_known_alone(cost) || __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0 ||
        now < __atomic_load_n(&again_ns, __ATOMIC_RELAXED))
        return now;
    /* Those who wait for the same moment wake a little apart, and the second sees the first at work. */
    uint64_t apart = 1000 + ((uint64_t)getpid() * 2654435761u >> 7) % 60000, begun = now, until = now + QUIET_WAIT_NS, clear;
    while ((clear = activity_clear_at(index, now)) > now && clear < until) {
        nap(clear - now + apart);
        now = policy_clock.now();
    }
    if (now > begun)
        __atomic_store_n(&again_ns, now + 20 * (now - begun), __ATOMIC_RELAXED);
    return now;
}
