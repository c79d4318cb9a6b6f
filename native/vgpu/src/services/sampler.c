/* Measuring launches with pairs of timing events, harvested without ever blocking. */
#include "services/launching.h"

#include "core/after_fork.h"
#include "core/log.h"
#include "core/waits.h"
#include "policy/budget.h"
#include "services/waiting.h"

#include <pthread.h>
#include <string.h>

enum { SAMPLES = 256, LOOKS = 32 }; /* in flight at once; how many of them are asked for in vain before the rest is left for later */

enum sample_state { SAMPLE_IDLE, SAMPLE_OPEN, SAMPLE_RUNNING };

struct sample {
    enum sample_state state;
    CUcontext context; /* the events belong to it; NULL: no events yet */
    CUevent start, end;
    struct launch of;
    uint64_t launched_ns, apart_ns; /* from the last one of the kind that is measured */
    bool unknown;
};

/* A moment of the device's clock: that at which the event came. */
struct moment {
    CUcontext context;
    CUevent event;
    uint64_t at_ns;
};

static struct moment moments[REGION_DEVICES]; /* the latest */
static pthread_mutex_t samples_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sample samples[SAMPLES];
static uint32_t running, running_on[REGION_DEVICES];
FORGET_IN_CHILD(samples_lock);
FORGET_IN_CHILD(samples);
FORGET_IN_CHILD(moments);
FORGET_IN_CHILD(running);
FORGET_IN_CHILD(running_on);

/* Other threads may be capturing in global mode, where event calls of anybody would spoil their graph. */
static int relax(void)
{
    int mode = CAPTURE_MODE_RELAXED;
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static void restore(int mode)
{
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
}

static CUresult record(CUevent event, const struct launch *launch)
{
    return launch->per_thread ? CUDA(cuEventRecord_ptsz(event, launch->stream)) : CUDA(cuEventRecord(event, launch->stream));
}

static bool make_events(struct sample *sample, CUcontext context)
{
    if (CUDA(cuEventCreate(&sample->start, 0)) != CUDA_SUCCESS)
        return false;
    if (CUDA(cuEventCreate(&sample->end, 0)) != CUDA_SUCCESS) {
        CUDA(cuEventDestroy_v2(sample->start));
        return false;
    }
    sample->context = context;
    return true;
}

/* An idle pair of the context, or a place for a new one. */
static struct sample *idle_sample(CUcontext context)
{
    struct sample *empty = NULL;
    for (int i = 0; i < SAMPLES; i++) {
        if (samples[i].state != SAMPLE_IDLE)
            continue;
        if (samples[i].context == context)
            return &samples[i];
        if (samples[i].context == NULL && empty == NULL)
            empty = &samples[i];
    }
    return empty != NULL && make_events(empty, context) ? empty : NULL;
}

static struct sample *open_sample(struct launch *launch)
{
    CUcontext context = NULL;
    if (CUDA(cuCtxGetCurrent(&context)) != CUDA_SUCCESS || context == NULL)
        return NULL;
    struct sample *sample = idle_sample(context);
    return sample != NULL && record(sample->start, launch) == CUDA_SUCCESS ? sample : NULL;
}

struct sample *sampler_begin(struct launch *launch, uint64_t now, bool unknown)
{
    if (pthread_mutex_trylock(&samples_lock) != 0)
        return NULL; /* not worth waiting for: another launch will be measured */
    int mode = relax();
    struct sample *sample = open_sample(launch);
    if (sample != NULL) {
        sample->state = SAMPLE_OPEN;
        sample->of = *launch;
        sample->launched_ns = now;
        uint64_t last = __atomic_exchange_n(&launch->cost->measured_at_ns, now, __ATOMIC_RELAXED);
        sample->apart_ns = last != 0 && now > last ? now - last : 0;
        sample->unknown = unknown;
        __atomic_add_fetch(&launch->cost->outstanding, 1, __ATOMIC_RELAXED);
    }
    restore(mode);
    pthread_mutex_unlock(&samples_lock);
    return sample;
}

static void count(int device, int by)
{
    __atomic_add_fetch(&running, (uint32_t)by, __ATOMIC_RELAXED);
    __atomic_add_fetch(&running_on[device], (uint32_t)by, __ATOMIC_RELAXED);
}

static void close_sample(struct sample *sample)
{
    if (sample->state == SAMPLE_RUNNING)
        count(sample->of.device, -1);
    if (sample->unknown) {
        activity_answered(sample->of.device, policy_clock.now());
        probe_answered(sample->of.device);
    }
    __atomic_sub_fetch(&sample->of.cost->outstanding, 1, __ATOMIC_RELAXED);
    sample->state = SAMPLE_IDLE;
}

void sampler_abandon(struct sample *sample)
{
    mutex_take(&samples_lock);
    close_sample(sample);
    pthread_mutex_unlock(&samples_lock);
}

void sampler_launched(struct sample *sample, struct launch *launch)
{
    int mode = relax();
    CUresult rc = record(sample->end, launch);
    restore(mode);
    mutex_take(&samples_lock);
    if (sample->state == SAMPLE_OPEN && rc == CUDA_SUCCESS) {
        sample->state = SAMPLE_RUNNING;
        count(sample->of.device, 1);
    } else if (sample->state == SAMPLE_OPEN) {
        close_sample(sample);
    }
    pthread_mutex_unlock(&samples_lock);
}

/*
 * When the launch ended by the device's clock, which begins anywhere: so much after the latest end known. Its event then stands
 * for that moment, and the one before is free for another launch. A second context of the device has the host's time only.
 */
static uint64_t end_by_device(struct sample *sample, uint64_t now)
{
    struct moment *latest = &moments[sample->of.device];
    float milliseconds = 0;
    if (latest->context == NULL) {
        CUevent spare;
        if (CUDA(cuEventCreate(&spare, 0)) != CUDA_SUCCESS)
            return now;
        *latest = (struct moment){sample->context, sample->end, now};
        sample->end = spare;
        return now;
    }
    if (latest->context != sample->context || CUDA(cuEventElapsedTime(&milliseconds, latest->event, sample->end)) != CUDA_SUCCESS)
        return now;
    uint64_t end = latest->at_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    if (milliseconds > 0) {
        CUevent before = latest->event;
        *latest = (struct moment){sample->context, sample->end, end};
        sample->end = before;
    }
    return end;
}

/* By how much less than was measured it is charged, and those for whom it speaks: they ran since the last one that was measured. */
static uint64_t shortened(const struct sample *sample, uint64_t duration, uint64_t own)
{
    uint64_t sum = duration > own ? (duration - own) * (1 + sample->of.others.launches) : 0, most = sample->apart_ns + duration;
    return sum < most ? sum : most;
}

static void account(struct sample *sample, uint64_t duration, uint64_t now)
{
    struct ext_device *device = &process_state.map.ext->devices[sample->of.device];
    uint32_t sharers = activity_sharers(sample->of.device, now, sample->launched_ns);
    log_debug("device %d: a launch of %llu ns beside %u others", sample->of.device, (unsigned long long)duration, sharers - 1);
    struct cost_verdict verdict = cost_learn(sample->of.cost, duration, sharers, sample->of.others);
    int64_t own = (int64_t)verdict.own_ns - sample->of.charged;
    if (sample->unknown)
        activity_learned(sample->of.device, verdict.own_ns);
    int64_t unproven = usage_unproven(&process_state.map, sample->of.device, shortened(sample, duration, verdict.own_ns));
    if (sample->of.multistream) /* what it waited for may have been another stream of this process */
        own = multistream_measured(sample->of.device, &sample->of.place, verdict.own_ns + (uint64_t)unproven, end_by_device(sample, now));
    else
        own += unproven;
    int64_t more = own + verdict.others_ns;
    launch_correct(sample->of.device, more);
    watch_count(sample->of.device, more);
    shared_count(&device->busy_ns, duration);
    shared_count(&device->samples, 1);
}

/* No kernel lasts longer than the time since its launch, whatever the events say: a debt of hours would stop the program. */
static uint64_t plausible(const struct sample *sample, double milliseconds, uint64_t now)
{
    uint64_t most = now > sample->launched_ns ? now - sample->launched_ns : 0;
    return milliseconds * 1e6 < (double)most ? (uint64_t)(milliseconds * 1e6) : most;
}

/* False: not done yet. */
static bool harvest_one(struct sample *sample, uint64_t now)
{
    float milliseconds = 0;
    CUresult rc = CUDA(cuEventQuery(sample->end));
    if (rc == CUDA_ERROR_NOT_READY)
        return false;
    if (rc == CUDA_SUCCESS && CUDA(cuEventElapsedTime(&milliseconds, sample->start, sample->end)) == CUDA_SUCCESS &&
        milliseconds >= 0)
        account(sample, plausible(sample, milliseconds, now), now);
    close_sample(sample);
    return true;
}

uint32_t sampler_awaits(int device)
{
    return shared_peek(&running_on[device]);
}

void sampler_harvest(uint64_t now)
{
    if (shared_peek(&running) == 0 || pthread_mutex_trylock(&samples_lock) != 0)
        return;
    static unsigned next;
    unsigned first = next;
    int mode = relax();
    for (unsigned i = 0, vain = 0; i < SAMPLES && vain < LOOKS; i++) {
        next = (first + i) % SAMPLES;
        vain += samples[next].state == SAMPLE_RUNNING && !harvest_one(&samples[next], now);
    }
    restore(mode);
    pthread_mutex_unlock(&samples_lock);
}

/* Its events went with it. */
void sampler_context_ended(CUcontext context)
{
    mutex_take(&samples_lock);
    for (int device = 0; device < REGION_DEVICES; device++)
        if (moments[device].context == context)
            moments[device] = (struct moment){0};
    for (int i = 0; i < SAMPLES; i++) {
        if (samples[i].context != context || context == NULL)
            continue;
        if (samples[i].state == SAMPLE_RUNNING)
            close_sample(&samples[i]);
        if (samples[i].state == SAMPLE_IDLE)
            samples[i].context = NULL;
    }
    pthread_mutex_unlock(&samples_lock);
}
