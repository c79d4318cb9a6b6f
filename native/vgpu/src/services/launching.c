#include "services/launching.h"

#include "core/after_fork.h"
#include "core/quiet.h"
#include "services/waiting.h"
#include "policy/budget.h"

#include <errno.h>

#define TICK_NS 20000000ull

uint64_t launch_next_tick_ns;
int launch_any_limit;
FORGET_IN_CHILD(launch_next_tick_ns);
FORGET_IN_CHILD(launch_any_limit);

void launching_context_ended(CUcontext context)
{
    sampler_context_ended(context);
}

static uint64_t machine_now(void)
{
    return real_cuda()->pumice_machine_now_ns();
}

static void machine_sleep(uint64_t ns)
{
    CUDA(pumice_machine_sleep_ns(ns));
}

/* A machine in virtual time brings its clock; everything else lives in real time. */
static void choose_clock(void)
{
    if (CUDA(pumice_machine_time_mode()) == 1)
        policy_clock = (struct policy_clock){machine_now, machine_now, machine_sleep};
}

static int device_of_launch(void)
{
    int count = shared_peek(&process_state.device_count);
    return count == 1 ? process_state.index_of[0] : process_current_device();
}

void launch_tick(uint64_t now)
{
    static int clock_chosen;
    KEEP_ERRNO;
    if (!__atomic_exchange_n(&clock_chosen, 1, __ATOMIC_SEQ_CST)) {
        choose_clock();
        now = policy_clock.coarse();
        cost_long_ns = process_state.config.arbiter ? COST_TURNS_LONG_NS : COST_LONG_NS;
    }
    int any = 0;
    for (int device = 0; device < REGION_DEVICES; device++)
        any |= backend->share(&process_state.map, &process_state.config, device) != 0;
    shared_put(&launch_any_limit, any);
    gate_record(&process_state.map, process_state.config.record_interval_s, now);
    int index = any ? -1 : device_of_launch();
    if (index >= 0) { /* unlimited, but neighbours want to know when they were alone */
        activity_publish(index, policy_clock.now(), (struct queued){.ahead_ns = TICK_NS});
        usage_of_card(&process_state.map, index, TICK_NS);
    }
    if (region_has_books(&process_state.map))
        shared_put(&process_state.map.ext->slots[process_state.map.slot].heartbeat_ns, now);
    shared_put(&launch_next_tick_ns, now + TICK_NS);
}

/*
 * What takes a clock, an event or a look at others: for launches that are measured, that are long, or that take turns. Short
 * ones tell others of those since the last sample and announce those until the next. False: the stream captures, so nothing runs now.
 */
static bool admit_carefully(struct launch *launch, const struct shape *shape, uint64_t limit, bool sampled, bool unknown)
{
    if (sampled && launch_capturing(launch->stream, launch->per_thread))
        return false;
    if (process_state.config.arbiter)
        await_window(launch->device, limit);
    uint64_t now = policy_clock.now(), estimate = (uint64_t)launch->charged;
    if (sampled) {
        sampler_harvest(now);
        now = await_quiet(launch->device, launch->cost, now);
        launch->sample = sampler_begin(launch, now, unknown);
    }
    if (unknown)
        probe_launched(launch->device, now, launch->sample != NULL);
    bool speaks_for_more = estimate < COST_LONG_NS && shape->kind == SHAPE_KERNEL && !process_state.config.arbiter;
    uint64_t before = speaks_for_more ? launch->others.charged_ns : 0; /* else each has told of itself */
    activity_publish(launch->device, now,
                     (struct queued){before + estimate, speaks_for_more ? estimate * COST_SAMPLE_RATE : 0, unknown, launch->sample != NULL});
    watch_start();
    return true;
}

/* One after the other: each waits until the work before it is paid for. False: it would have to wait and captures. */
static bool admit_alone(struct launch *launch, int64_t estimate, uint64_t limit, bool first)
{
    if (!first && !await_fair(launch->device, launch))
        return false;
    struct ticket ticket = launch_charge(launch->device, estimate);
    launch->charged = estimate;
    if (!usage_allows(&process_state.map, launch->device, ticket, 0)) {
        if (launch_capturing(launch->stream, launch->per_thread)) {
            launch_correct(launch->device, -estimate);
            return false;
        }
        int64_t ahead = first ? 0 : burst_ahead(launch->device, launch->cost, limit, policy_clock.now());
        await_turn(launch->device, ticket, first, ahead);
    }
    if (first && !process_state.config.arbiter)
        await_neighbours(launch->device);
    return true;
}

bool launch_admit(struct launch *launch, const struct shape *shape, CUstream stream, bool per_thread, uint64_t coarse)
{
    int index = device_of_launch();
    uint64_t limit = index < 0 ? 0 : launch_limit_of(index);
    if (limit == 0)
        return false;

    KEEP_ERRNO;
    struct cost *cost = cost_of(cost_key(shape->function, shape->blocks, shape->threads, shape->shared));
    *launch = (struct launch){.device = index, .per_thread = per_thread, .stream = stream, .cost = cost};
    bool first = false, several = multistream_applies(index, stream, per_thread, coarse);
    if (shared_peek(&cost->samples) == 0 && !cost->patience_lost) {
        if (launch_capturing(stream, per_thread) || !await_fair(index, launch))
            return false;
        first = await_probe(index, cost, !several); /* of its kind, measured alone */
    } else if (cost_estimate(cost) >= COST_LONG_NS && !process_state.config.arbiter && budget_probe_runs(&process_state.map.ext->devices[index], policy_clock.now()) &&
               !launch_capturing(stream, per_thread)) {
        yield_to_probe(index, (int64_t)cost_estimate(cost));
    }

    /* While there is credit no clock is needed: what was earned meanwhile is added when it runs out. */
    int64_t estimate = (int64_t)cost_estimate(cost);
    bool unknown = shared_peek(&cost->samples) == 0;
    if (several && !unknown) {
        if (!multistream_admit(launch, (uint64_t)estimate))
            return false;
        launch->place.all_measured = (uint64_t)estimate >= cost_long_ns;
    } else if (!admit_alone(launch, estimate, limit, first)) {
        return false; /* never sleep on a thread that captures; the graph pays when it runs */
    }

    bool sampled = launch->multistream ? cost_wants_sample_anywhere(cost)
                                    : cost_wants_sample(cost, shape->kind, coarse, (uint64_t)estimate, &launch->others);
    bool launches = true;
    if (sampled || unknown || estimate >= COST_LONG_NS || process_state.config.arbiter)
        launches = admit_carefully(launch, shape, limit, sampled, unknown);
    if (!launches)
        launch_correct(index, -launch->charged);
    return launches;
}

CUresult launch_done(struct launch *launch, CUresult rc)
{
    if (rc == CUDA_SUCCESS) {
        if (launch->sample != NULL)
            sampler_launched(launch->sample, launch);
        shared_count(&process_state.map.ext->devices[launch->device].launches, 1);
        watch_count(launch->device, launch->charged);
        return rc;
    }
    if (launch->sample != NULL)
        sampler_abandon(launch->sample);
    launch_correct(launch->device, -launch->charged);
    return rc;
}
