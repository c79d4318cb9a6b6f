/*
 * The steps around every launch: tell the monitor, wait while blocked, pay for GPU time where a core limit holds.
 *
 * While no limit is armed the whole of it is a few loads and a look at the coarse clock.
 */
#ifndef VGPU_LAUNCHING_H
#define VGPU_LAUNCHING_H

#include "services/process_state.h"
#include "policy/clock.h"
#include "policy/cost.h"
#include "policy/gate.h"
#include "policy/overlap.h"

struct sample;

struct launch {
    int device;
    bool per_thread;
    CUstream stream;
    struct cost *cost;
    int64_t charged;
    struct sample *sample;
    struct cost_others others; /* for whom the sample speaks */
    bool multistream; /* beside others of this process: it has a place among them */
    struct overlap_place place;
};

struct shape {
    const void *function; /* or the executable graph */
    uint64_t blocks;
    uint32_t threads, shared;
    enum cost_shape kind;
};

extern uint64_t launch_next_tick_ns;
extern int launch_any_limit; /* some device has a core limit; brought up to date by the tick */

void launch_tick(uint64_t now);
bool launch_admit(struct launch *launch, const struct shape *shape, CUstream stream, bool per_thread, uint64_t coarse);
CUresult launch_done(struct launch *launch, CUresult rc);

/* True when launch_done has to follow. */
static inline bool launch_begin(struct launch *launch, const struct shape *shape, CUstream stream, bool per_thread)
{
    if (!process_serves())
        return false;
    if (__builtin_expect(gate_closed(&process_state.map), 0))
        gate_wait(&process_state.map);
    uint64_t now = policy_clock.coarse();
    if (__builtin_expect(now >= shared_peek(&launch_next_tick_ns), 0))
        launch_tick(now);
    if (__builtin_expect(!shared_peek(&launch_any_limit), 1))
        return false;
    return launch_admit(launch, shape, stream, per_thread, now);
}

/* sampler.c: pairs of events around launches whose time is to be known. */
struct sample *sampler_begin(struct launch *launch, uint64_t now, bool unknown);
void sampler_launched(struct sample *sample, struct launch *launch);
void sampler_abandon(struct sample *sample);
void sampler_harvest(uint64_t now);
uint32_t sampler_awaits(int device); /* how many have not answered yet */
void sampler_context_ended(CUcontext context);

/* multistream.c: launches of a process that uses several streams. admit charges; false: the stream captures. */
bool multistream_applies(int device, CUstream stream, bool per_thread, uint64_t coarse);
bool multistream_admit(struct launch *launch, uint64_t cost);
/* By the device's clock; to be charged on top. */
int64_t multistream_measured(int device, const struct overlap_place *place, uint64_t duration, uint64_t end_ns);

/* activity.c: who has work on the device. */
struct queued {
    uint64_t ns, ahead_ns; /* what has been queued since the last word, and what may come until the next */
    bool unknown, measured;
};
void activity_publish(int device, uint64_t now, struct queued queued);
uint64_t activity_refresh(int device, uint64_t now, bool awaits); /* by what has answered: when to look again, 0: done */
void activity_learned(int device, uint64_t length); /* what a launch of unknown length took */
/* Returns the length that a launch of unknown length is taken to last, in ns: others wait for it while the program may do
 * something else, and nobody looks whether it is done. */
uint64_t activity_unknown_length(int device, uint64_t most);
void activity_answered(int device, uint64_t now); /* what was unknown is done: no longer busy on its account */
uint32_t activity_sharers(int device, uint64_t now, uint64_t since); /* including ourselves */
uint64_t activity_clear_at(int device, uint64_t now); /* when everybody else is expected to be done */
uint64_t activity_neighbours_clear_at(int device, uint64_t now); /* the same of the container's other processes */
void activity_before_forgetting(void); /* in a child: closes what its parent opened */
uint64_t activity_ask(int device, uint64_t now, uint64_t limit); /* the arbiter: 0 = launch, else ns to wait */

/* watch.c: the one thread of the library; zeroes the published utilisation when a process falls silent. */
void watch_start(void);
void watch_count(int device, int64_t busy_ns);

void launching_context_ended(CUcontext context);

#endif
