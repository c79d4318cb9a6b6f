/* Launches of a process that uses several streams: policy/overlap.h says which may run side by side and what they cost. */
#include "services/waiting.h"

#include "core/after_fork.h"
#include "policy/budget.h"

#include <string.h>

static struct overlap overlaps[REGION_DEVICES];
FORGET_IN_CHILD(overlaps);

enum { STREAM_LEGACY = 1, STREAM_PER_THREAD = 2 };

/* A name of the stream: each thread has a default stream of its own where the program asked for that. */
static uint64_t key_of(CUstream stream, bool per_thread)
{
    static __thread char own __attribute__((tls_model("initial-exec")));
    uint64_t handle = (uint64_t)(uintptr_t)stream;
    if (handle == STREAM_PER_THREAD || (handle == 0 && per_thread))
        return (uint64_t)(uintptr_t)&own;
    return handle == STREAM_LEGACY ? OVERLAP_LEGACY : handle;
}

bool multistream_applies(int device, CUstream stream, bool per_thread, uint64_t coarse)
{
    return overlap_several(&overlaps[device], key_of(stream, per_thread), coarse);
}

/* Waits for its turn as the one that opens the next slice. False: the stream captures. */
static bool lead(struct launch *launch, uint64_t key, uint64_t cost)
{
    struct overlap *overlap = &overlaps[launch->device];
    if (!await_fair(launch->device, launch)) {
        overlap_give_up(overlap);
        return false;
    }
    struct ticket ticket = launch_charge(launch->device, (int64_t)cost);
    uint64_t now = policy_clock.now(), limit = launch_limit_of(launch->device);
    if (limit != 0)
        usage_refill(&process_state.map, launch->device, limit, now);
    if (limit != 0 && !usage_allows(&process_state.map, launch->device, ticket, 0)) {
        if (launch_capturing(launch->stream, launch->per_thread)) {
            launch_correct(launch->device, -(int64_t)cost);
            overlap_give_up(overlap);
            return false;
        }
        overlap_expect(overlap, now + usage_wait(&process_state.map, launch->device, limit, ticket, 0).shared_ns);
        await_turn(launch->device, ticket, false, 0);
    }
    sampler_harvest(policy_clock.now());
    overlap_open(overlap, key, policy_clock.now(), cost, &launch->place);
    launch_correct(launch->device, launch->place.extension - (int64_t)cost);
    return true;
}

bool multistream_admit(struct launch *launch, uint64_t cost)
{
    struct overlap *overlap = &overlaps[launch->device];
    uint64_t key = key_of(launch->stream, launch->per_thread), wait = 0;
    launch->multistream = true;
    for (;;) {
        uint64_t now = policy_clock.now();
        switch (overlap_ask(overlap, key, now, cost, &launch->place, &wait)) {
        case OVERLAP_GO:
            launch_charge(launch->device, launch->place.extension);
            launch->charged = launch->place.extension;
            return true;
        case OVERLAP_LEAD:
            if (!lead(launch, key, cost))
                return false;
            launch->charged = launch->place.extension;
            return true;
        case OVERLAP_WAIT:
            if (launch_capturing(launch->stream, launch->per_thread))
                return false;
            rest(launch->device, now, wait);
        }
    }
}

int64_t multistream_measured(int device, const struct overlap_place *place, uint64_t duration, uint64_t end_ns)
{
    return overlap_measured(&overlaps[device], place, duration, end_ns);
}
