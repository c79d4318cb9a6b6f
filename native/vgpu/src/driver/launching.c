#include "driver/launching.h"

#include "policy/arbiter.h"
#include "policy/budget.h"

#include <errno.h>
#include <unistd.h>

#define TICK_NS 20000000ull
#define LONG_NS 100000               /* from here on a launch can afford to look at the clock */
#define LONGEST_NAP_NS 50000000ull   /* limit, policy and switch are looked at again after it */
#define PROBE_NS 400000000ull        /* how long the right to launch something unknown holds */
#define QUIET_WAIT_NS 20000000ull    /* how long a sample waits for others to be done */
#define PROBE_WAIT_NS 1500000000ull  /* how long it is waited for, at most once per kind of kernel */

uint64_t launch_next_tick_ns;
int launch_any_limit;

void sampler_after_fork(void);
void sampler_context_ended(CUcontext context);
void watch_after_fork(void);
void activity_after_fork(void);

void launching_after_fork(void)
{
    launch_next_tick_ns = 0;
    launch_any_limit = 0;
    gate_after_fork();
    sampler_after_fork();
    watch_after_fork();
    activity_after_fork();
    cost_forget_all();
}

void launching_context_ended(CUcontext context)
{
    sampler_context_ended(context);
}

static uint64_t machine_now(void)
{
    return real_table.pumice_machine_now_ns();
}

static void machine_sleep(uint64_t ns)
{
    INSIDE(real_table.pumice_machine_sleep_ns(ns));
}

/* A machine in virtual time brings its clock; everything else lives in real time. */
static void choose_clock(void)
{
    const struct real *real = real_cuda();
    if (real->pumice_machine_time_mode != NULL && real->pumice_machine_now_ns != NULL &&
        real->pumice_machine_sleep_ns != NULL && INSIDE(real->pumice_machine_time_mode()) == 1)
        policy_clock = (struct policy_clock){machine_now, machine_now, machine_sleep};
}

/* The limit that holds, shared evenly where the file of another library leaves no room for a common budget. */
static uint64_t limit_of(int device)
{
    uint64_t limit = gate_limit(&guest.map, guest.config.policy, device);
    if (limit == 0 || guest.map.ext_shared || !guest.map.shared)
        return limit;
    uint64_t processes = 0;
    for (int slot = 0; slot < REGION_SLOTS && slot < shared_peek(&guest.map.region->proc_num); slot++)
        processes += shared_peek(&guest.map.region->procs[slot].status) != SLOT_FREE;
    return processes > limit ? 1 : limit / (processes > 0 ? processes : 1);
}

static int device_of_launch(void)
{
    int count = __atomic_load_n(&guest.device_count, __ATOMIC_RELAXED);
    return count == 1 ? guest.index_of[0] : guest_current_device(&real_table);
}

void launch_tick(uint64_t now)
{
    static int clock_chosen;
    int saved = errno;
    if (!__atomic_exchange_n(&clock_chosen, 1, __ATOMIC_SEQ_CST)) {
        choose_clock();
        now = policy_clock.coarse();
    }
    int any = 0;
    for (int device = 0; device < REGION_DEVICES; device++)
        any |= gate_limit(&guest.map, guest.config.policy, device) != 0;
    __atomic_store_n(&launch_any_limit, any, __ATOMIC_RELAXED);
    gate_record(&guest.map, guest.config.record_interval_s, now);
    int index = any ? -1 : device_of_launch();
    if (index >= 0) /* unlimited, but neighbours want to know when they were alone */
        activity_publish(index, policy_clock.now(), TICK_NS, false);
    if (region_has_books(&guest.map))
        __atomic_store_n(&guest.map.ext->slots[guest.map.slot].heartbeat_ns, now, __ATOMIC_RELAXED);
    __atomic_store_n(&launch_next_tick_ns, now + TICK_NS, __ATOMIC_RELAXED);
    errno = saved;
}

/* A launch on a capturing stream becomes a node of a graph; it costs when the graph runs. */
static bool capturing(CUstream stream, bool per_thread)
{
    int status = 0;
    CUresult (*ask)(CUstream, int *) = per_thread && real_table.cuStreamIsCapturing_ptsz != NULL
                                           ? real_table.cuStreamIsCapturing_ptsz
                                           : real_table.cuStreamIsCapturing;
    return ask != NULL && INSIDE(ask(stream, &status)) == CUDA_SUCCESS && status != 0;
}

static uint64_t nap(uint64_t ns)
{
    ns = ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS;
    policy_clock.sleep(ns);
    return ns;
}

/*
 * A kernel nobody knows could last a second: it waits until every other unknown one of the container has answered. Bounded,
 * and once per kind of kernel, for the earlier one may itself be waiting for what this thread does next.
 */
static void await_probe(struct ext_device *device, struct cost *cost)
{
    uint64_t step = 20000, waited = 0;
    while (waited < PROBE_WAIT_NS && __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0) {
        uint64_t now = policy_clock.now();
        sampler_harvest(now);
        if (__atomic_load_n(&cost->samples, __ATOMIC_RELAXED) > 0 || budget_probe_begin(device, now, PROBE_NS))
            return;
        waited += nap(step);
        step = step < 1000000 ? step + step / 4 : step;
    }
    if (waited >= PROBE_WAIT_NS)
        __atomic_store_n(&cost->patience_lost, 1, __ATOMIC_RELAXED);
}

/* Sleeps off the debt. Whatever changes meanwhile, limit, policy, switch or what others owe, is seen after each nap. */
static void await_turn(struct ext_device *device, int index, int64_t ticket)
{
    uint64_t slept = 0;
    for (;;) {
        uint64_t limit = limit_of(index), now = policy_clock.now();
        if (limit == 0)
            break;
        budget_refill(device, limit, now);
        if (budget_allows(device, ticket))
            break;
        sampler_harvest(now);
        uint64_t wait = budget_wait_ns(device, limit, ticket);
        if (wait > 0)
            slept += nap(wait);
        if (gate_closed(&guest.map))
            gate_wait(&guest.map);
    }
    if (slept > 0)
        shared_add(&device->throttled_ns, slept);
}

/* Tenants whose limits fill the card take turns, where that is asked for. Patience is bounded: the file is anybody's. */
static void await_window(int index, uint64_t limit)
{
    uint64_t waited = 0, wait;
    while (waited < ARBITER_PATIENCE_NS && (wait = activity_ask(index, policy_clock.now(), limit)) > 0)
        waited += nap(wait);
}

/*
 * A kind of kernel that was only ever measured beside others may meet them in step every time, and would be billed for
 * their slices for ever. Its next sample waits for a quiet moment.
 */
static uint64_t await_quiet(int index, const struct cost *cost, uint64_t now)
{
    if (__atomic_load_n(&cost->clean_samples, __ATOMIC_RELAXED) > 0 || __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0)
        return now;
    /* Those who wait for the same moment wake a little apart, and the second sees the first at work. */
    uint64_t apart = 1000 + ((uint64_t)getpid() * 2654435761u >> 7) % 60000, until = now + QUIET_WAIT_NS, clear;
    while ((clear = activity_clear_at(index, now)) > now && clear < until) {
        nap(clear - now + apart);
        now = policy_clock.now();
    }
    return now;
}

/*
 * What takes a clock, an event or a look at others: for launches that are measured, that are long, or that take turns. Short
 * ones speak for the thirty-two until the next sample. False: the stream captures, so nothing runs now.
 */
static bool admit_carefully(struct launch *launch, const struct shape *shape, uint64_t limit, bool sampled, bool unknown)
{
    if (sampled && capturing(launch->stream, launch->per_thread))
        return false;
    if (guest.config.arbiter)
        await_window(launch->device, limit);
    uint64_t now = policy_clock.now(), estimate = (uint64_t)launch->charged;
    if (sampled) {
        sampler_harvest(now);
        now = await_quiet(launch->device, launch->cost, now);
        launch->sample = sampler_begin(launch, now, unknown);
    }
    if (unknown)
        budget_probe_renew(&guest.map.ext->devices[launch->device], launch->sample != NULL ? now + PROBE_NS : 0);
    bool speaks_for_more = estimate < LONG_NS && shape->kind == SHAPE_KERNEL && !guest.config.arbiter;
    activity_publish(launch->device, now, speaks_for_more ? estimate * COST_SAMPLE_RATE : estimate, unknown);
    watch_start();
    return true;
}

bool launch_admit(struct launch *launch, const struct shape *shape, CUstream stream, bool per_thread, uint64_t coarse)
{
    int index = device_of_launch();
    uint64_t limit = index < 0 ? 0 : limit_of(index);
    if (limit == 0)
        return false;

    int saved = errno;
    struct ext_device *device = &guest.map.ext->devices[index];
    struct cost *cost = cost_of(cost_key(shape->function, shape->blocks, shape->threads, shape->shared));
    if (__atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0 && !cost->patience_lost) {
        if (capturing(stream, per_thread))
            return false;
        await_probe(device, cost);
    }

    /* While there is credit no clock is needed: what was earned meanwhile is added when it runs out. */
    int64_t estimate = (int64_t)cost_estimate(cost);
    int64_t ticket = budget_charge(device, estimate);
    if (!budget_allows(device, ticket)) {
        if (capturing(stream, per_thread)) {
            budget_correct(device, -estimate);
            return false; /* never sleep on a thread that captures; the graph pays when it runs */
        }
        await_turn(device, index, ticket);
    }

    bool unknown = __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0;
    *launch = (struct launch){.device = index, .per_thread = per_thread, .stream = stream, .cost = cost, .charged = estimate};
    bool sampled = cost_wants_sample(cost, shape->kind, coarse);
    bool launches = true;
    if (sampled || unknown || estimate >= LONG_NS || guest.config.arbiter)
        launches = admit_carefully(launch, shape, limit, sampled, unknown);
    if (!launches)
        budget_correct(device, -estimate);
    errno = saved;
    return launches;
}

CUresult launch_done(struct launch *launch, CUresult rc)
{
    if (rc == CUDA_SUCCESS) {
        if (launch->sample != NULL)
            sampler_launched(launch->sample, launch);
        __atomic_fetch_add(&guest.map.ext->devices[launch->device].launches, 1, __ATOMIC_RELAXED);
        watch_count(launch->device, launch->charged);
        return rc;
    }
    if (launch->sample != NULL)
        sampler_abandon(launch->sample);
    budget_correct(&guest.map.ext->devices[launch->device], -launch->charged);
    return rc;
}
