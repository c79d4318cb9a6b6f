#include "services/waiting.h"

#include "core/after_fork.h"
#include "core/numbers.h"
#include "policy/arbiter.h"
#include "policy/budget.h"
#include "policy/fair.h"

#include <string.h>
#include <unistd.h>

#define LONGEST_NAP_NS 50000000ull   /* limit, policy and switch are looked at again after it */
#define QUIET_WAIT_NS 20000000ull    /* how long a sample waits for others to be done */
#define NEIGHBOUR_WAIT_NS 250000000ull /* how long a first measurement waits for the container's others */
#define YIELD_LENGTHS 4
#define BURST_FOLLOWERS 3
#define IN_VAIN_NS 300000000ull      /* for the words of the region, where what this process knows itself does not bear them out */
#define FAIR_LENGTHS 4               /* of what it launched, until its siblings have had the same */
#define MANY_SHORT 8u                 /* launches of unknown length on their way at once, where they are short */
#define PROBE_LOOKS 32                /* what a kernel took is known a thirty-second of it later */
#define SHORTEST_LOOK_NS 10000ull
#define LONGEST_LOOK_NS 1000000ull    /* who is waited for may be done sooner than it could tell; later than 5 ms nobody would wait for us */
#define PROBE_WAIT_NS 3000000000ull  /* how long it is waited for, at most once per kind of kernel */

uint64_t launch_limit_shared_evenly(uint64_t limit)
{
    uint64_t processes = 0;
    for (int slot = 0; slot < REGION_SLOTS && slot < shared_peek(&process_state.map.region->proc_num); slot++)
        processes += shared_peek(&process_state.map.region->procs[slot].status) != SLOT_FREE;
    return processes > limit ? 1 : limit / (processes > 0 ? processes : 1);
}

bool launch_capturing(CUstream stream, bool per_thread)
{
    int status = 0;
    CUresult rc = per_thread ? CUDA(cuStreamIsCapturing_ptsz(stream, &status)) : CUDA(cuStreamIsCapturing(stream, &status));
    return rc == CUDA_SUCCESS && status != 0;
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
    uint64_t settles = activity_refresh(index, now, sampler_awaits(index) > 0);
    uint64_t slept = nap(settles > 0 && settles < wait ? settles : wait);
    if (gate_closed(&process_state.map))
        gate_wait(&process_state.map);
    return slept;
}

static int64_t charged_since[REGION_DEVICES]; /* it was last let go before its siblings */

struct ticket launch_charge(int index, int64_t cost)
{
    shared_count(&charged_since[index], cost);
    fair_used(&process_state.map, index, cost);
    return usage_charge(&process_state.map, index, cost);
}

void launch_correct(int index, int64_t difference)
{
    shared_count(&charged_since[index], difference);
    fair_used(&process_state.map, index, difference);
    usage_correct(&process_state.map, index, difference);
}

/* For the sake of others, by what they write: no longer than they are seen to use the card. */
static uint64_t rest_for_others(int index, uint64_t now, uint64_t wait)
{
    uint64_t slept = rest(index, now, wait);
    usage_waited(&process_state.map, index, slept);
    return slept;
}

/* A process is ahead of its siblings by what it launched itself. */
static bool fair_in_vain(int index, uint64_t slept, uint64_t limit)
{
    int64_t charged = shared_peek(&charged_since[index]);
    uint64_t due = charged > 0 ? FAIR_LENGTHS * (uint64_t)charged * 100 / limit : 0;
    return process_state.map.usage != NULL && slept > IN_VAIN_NS + due;
}

bool await_fair(int index, const struct launch *launch)
{
    uint64_t slept = 0, limit, wait;
    for (;;) {
        uint64_t now = policy_clock.now();
        limit = launch_limit_of(index);
        if (limit == 0)
            break;
        usage_refill(&process_state.map, index, limit, now);
        if ((wait = fair_wait_ns(&process_state.map, index, limit, now)) == 0 || !usage_is_patient(&process_state.map, index, now) ||
            fair_in_vain(index, slept, limit))
            break;
        if (launch_capturing(launch->stream, launch->per_thread))
            return false;
        slept += rest_for_others(index, now, wait);
    }
    shared_put(&charged_since[index], 0);
    if (slept > 0)
        shared_add(&process_state.map.ext->devices[index].throttled_ns, slept);
    return true;
}

/* What other processes of the container have queued runs out; new work of theirs waits for the answer (yield_to_probe). */
void await_neighbours(int index)
{
    uint64_t waited = 0, now = policy_clock.now(), clear;
    while (waited < NEIGHBOUR_WAIT_NS && (clear = activity_neighbours_clear_at(index, now)) > now && usage_is_patient(&process_state.map, index, now)) {
        waited += rest_for_others(index, now, clear - now < NEIGHBOUR_WAIT_NS ? clear - now : NEIGHBOUR_WAIT_NS);
        now = policy_clock.now();
    }
}

/*
 * A measurement beside others would take their slices for the kernel's own time, and all would be billed too much. So long kernels
 * let the first one of another process answer, for a few times their own length at most.
 */
void yield_to_probe(int index, int64_t estimate)
{
    int64_t waited = 0;
    uint64_t now = policy_clock.now();
    while (waited < YIELD_LENGTHS * estimate && budget_probe_runs(&process_state.map.ext->devices[index], now) &&
           usage_is_patient(&process_state.map, index, now)) {
        sampler_harvest(now); /* it may be our own that waits to be read */
        uint64_t slept = nap((uint64_t)estimate / 16);
        usage_waited(&process_state.map, index, slept);
        waited += (int64_t)slept;
        now = policy_clock.now();
    }
}

/* Somebody's right lapsed, and nothing unknown has answered since. */
static int unanswered[REGION_DEVICES];
static uint64_t own_until[REGION_DEVICES]; /* until when this process's own unknown launch is waited for */
FORGET_IN_CHILD(unanswered);
FORGET_IN_CHILD(own_until);

void probe_launched(int index, uint64_t now, bool measured)
{
    struct ext_device *device = &process_state.map.ext->devices[index];
    budget_probe_launched(device, now + activity_unknown_length(index, PROBE_NS));
    budget_probe_renew(device, measured ? now + PROBE_NS : 0);
    shared_put(&own_until[index], measured ? now + PROBE_NS : 0);
}

void probe_answered(int index)
{
    shared_put(&unanswered[index], 0);
    shared_put(&own_until[index], 0);
    budget_probe_renew(&process_state.map.ext->devices[index], 0);
}

/*
 * Where new kinds have been short lately a few may be on their way at once: one by one the card would idle between them. Behind each
 * other on one stream each is measured by itself.
 */
static bool several_may_start(int index, bool one_stream)
{
    return one_stream && activity_unknown_length(index, PROBE_NS) < COST_LONG_NS && sampler_awaits(index) < MANY_SHORT;
}

/*
 * A kernel nobody knows could last a second: it waits until every other unknown one of its process has answered, and those of the
 * container's others have or should have, for nobody may be looking. Bounded, and once per kind of kernel, for the earlier one may itself be waiting for what this thread does next. One that lasts longer than
 * its right, as kernels that stay on the card do, costs its container that time once, and not each kind that comes meanwhile.
 */
static bool take_probe(int index, struct cost *cost, bool one_stream)
{
    struct ext_device *device = &process_state.map.ext->devices[index];
    uint64_t waited = 0, wait;
    if (shared_peek(&unanswered[index]))
        return false;
    while (waited < PROBE_WAIT_NS && shared_peek(&cost->samples) == 0) {
        uint64_t now = policy_clock.now();
        sampler_harvest(now);
        if (shared_peek(&cost->samples) > 0 || several_may_start(index, one_stream))
            return false;
        bool held = shared_peek(&device->probe_until_ns) != 0;
        if (shared_peek(&own_until[index]) <= now && budget_probe_begin(device, now, PROBE_NS)) {
            if (held && waited >= PROBE_NS / 2)
                shared_put(&unanswered[index], 1);
            return true;
        }
        bool own = shared_peek(&own_until[index]) > now;
        if (!own && !usage_is_patient(&process_state.map, index, now))
            return false;
        wait = clamp_u64(waited / PROBE_LOOKS, SHORTEST_LOOK_NS, LONGEST_LOOK_NS);
        waited += own ? rest(index, now, wait) : rest_for_others(index, now, wait);
    }
    if (waited >= PROBE_WAIT_NS)
        shared_put(&cost->patience_lost, 1);
    return false;
}

/*
 * What is not known does not start on debt, and nobody waits with the right in hand: whoever launches nothing but new kinds would be in
 * debt for ever. What others of the container charge meanwhile is not waited for, nor asked about again: a region that was mended
 * meanwhile counts from less than the ticket does, and who has no patience left would ask for ever.
 */
bool await_probe(int index, struct cost *cost, bool one_stream)
{
    if (!take_probe(index, cost, one_stream))
        return false;
    struct ticket ticket = usage_charged(&process_state.map, index);
    uint64_t limit = launch_limit_of(index);
    if (limit != 0)
        usage_refill(&process_state.map, index, limit, policy_clock.now());
    if (limit == 0 || usage_allows(&process_state.map, index, ticket, 0))
        return true;
    budget_probe_renew(&process_state.map.ext->devices[index], 0);
    await_turn(index, ticket, false, 0);
    return take_probe(index, cost, one_stream);
}

int64_t burst_ahead(int index, const struct cost *cost, uint64_t limit, uint64_t now)
{
    if (!cost_is_unsure(cost) || activity_sharers(index, now, now) <= 1)
        return 0;
    int64_t followers = BURST_FOLLOWERS * (int64_t)cost_estimate(cost), most = budget_cap(limit) / 2;
    return followers < most ? followers : most;
}

/* Sleeps off the debt. Whatever changes meanwhile, limit, policy, switch or what others owe, is seen after each nap. */
void await_turn(int index, struct ticket ticket, bool first, int64_t ahead)
{
    struct ext_device *device = &process_state.map.ext->devices[index];
    uint64_t slept = 0, in_vain = 0;
    for (;;) {
        uint64_t limit = launch_limit_of(index), now = policy_clock.now();
        if (limit == 0)
            break;
        usage_refill(&process_state.map, index, limit, now);
        if (first)
            budget_probe_renew(device, now + PROBE_NS);
        if (usage_allows(&process_state.map, index, ticket, ahead))
            break;
        struct usage_wait waits = usage_wait(&process_state.map, index, limit, ticket, ahead);
        bool own = waits.own_ns > 0, patient = usage_is_patient(&process_state.map, index, now) && in_vain < IN_VAIN_NS;
        if (!own && !patient) {
            usage_mend(&process_state.map, index, now);
            break;
        }
        uint64_t wait = patient && waits.shared_ns > waits.own_ns ? waits.shared_ns : waits.own_ns;
        fair_asks(&process_state.map, index, now + (wait < LONGEST_NAP_NS ? wait : LONGEST_NAP_NS));
        uint64_t rested = own ? rest(index, now, wait) : rest_for_others(index, now, wait);
        slept += rested;
        in_vain += own || process_state.map.usage == NULL ? 0 : rested;
    }
    if (slept > 0)
        shared_add(&device->throttled_ns, slept);
}

/* Tenants whose limits fill the card take turns, where that is asked for. Patience is bounded: the file is anybody's. */
void await_window(int index, uint64_t limit)
{
    uint64_t waited = 0, wait, now;
    while (waited < ARBITER_PATIENCE_NS && (wait = activity_ask(index, now = policy_clock.now(), limit)) > 0 &&
           usage_is_patient(&process_state.map, index, now)) {
        waited += rest_for_others(index, now, wait < LONGEST_LOOK_NS ? wait : LONGEST_LOOK_NS);
        usage_refill(&process_state.map, index, limit, policy_clock.now());
    }
}

/*
 * A kind of kernel that was only ever measured beside others may meet them in step every time, and would be billed for
 * their slices for ever. Its next sample waits for a quiet moment.
 */
uint64_t await_quiet(int index, const struct cost *cost, uint64_t now)
{
    static uint64_t again_ns; /* beside somebody who is never done, each sample would wait in vain: a twentieth of the time does */
    if (cost_known_alone(cost) || shared_peek(&cost->samples) == 0 || now < shared_peek(&again_ns))
        return now;
    /* Those who wait for the same moment wake a little apart, and the second sees the first at work. */
    uint64_t apart = 1000 + ((uint64_t)getpid() * 2654435761u >> 7) % 60000, begun = now, until = now + QUIET_WAIT_NS, clear;
    while ((clear = activity_clear_at(index, now)) > now && clear < until) {
        nap(clear - now + apart);
        now = policy_clock.now();
    }
    if (now > begun)
        shared_put(&again_ns, now + 20 * (now - begun));
    return now;
}
