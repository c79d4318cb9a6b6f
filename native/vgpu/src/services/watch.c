/*
 * The library's one thread, started by the first launch under a core limit or the first context under a memory limit. Once a second
 * it publishes the share of GPU time that this process used, zero when it has fallen silent, and compares what is booked with what
 * NVML measures. It calls NVML and never the driver.
 */
#include "services/launching.h"

#include "core/after_fork.h"
#include "core/attach.h"
#include "core/log.h"
#include "core/shared_allocations.h"
#include "core/slots.h"
#include "services/contexts.h"
#include "services/reconcile.h"
#include "policy/overuse.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 1000000000ull
enum { STACK_BYTES = 256 * 1024 };

static int started;
static int64_t busy_ns[REGION_DEVICES];
FORGET_IN_CHILD(started);
FORGET_IN_CHILD(busy_ns);

void watch_count(int device, int64_t ns)
{
    shared_count(&busy_ns[device], ns);
}

static void publish(uint64_t span_ns)
{
    for (int device = 0; device < REGION_DEVICES; device++) {
        int64_t busy = __atomic_exchange_n(&busy_ns[device], 0, __ATOMIC_RELAXED);
        uint64_t percent = busy <= 0 || span_ns == 0 ? 0 : (uint64_t)busy * 100 / span_ns;
        int slot = process_state.map.slot;
        if (region_has_books(&process_state.map))
            shared_put(&process_state.map.region->procs[slot].device_util[device].sm_util, percent > 100 ? 100 : percent);
    }
}

/* Whoever holds the most of what is held too much ends itself; SIGKILL, because the program must not be able to go on. */
static void end_if_largest(int device, struct overuse *state)
{
    int slot = overuse_look(&process_state.map, device, clock_monotonic_ns(), state);
    if (slot < 0 || shared_allocations_sweep(&process_state.map) != 0 || slot != process_state.map.slot)
        return;
    log_error("device %d: the container holds a tenth more than its limit of %llu bytes; its largest process ends", device,
              (unsigned long long)memory_limit(&process_state.map, device));
    kill(getpid(), SIGKILL);
}

static void reconcile(struct overuse *overuse)
{
    for (int device = 0; device < REGION_DEVICES && region_has_books(&process_state.map); device++) {
        if (!contexts_any(device))
            continue;
        reconcile_device(device, true);
        if (process_state.config.oom_killer)
            end_if_largest(device, &overuse[device]);
    }
}

static void sleep_ns(uint64_t ns)
{
    struct timespec span = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&span, NULL);
}

static void *watch(void *nothing)
{
    struct overuse overuse[REGION_DEVICES];
    memset(overuse, 0, sizeof overuse);
    uint64_t last = policy_clock.now(), published = clock_monotonic_ns();
    uint64_t every = process_state.config.reconcile_ms * 1000000ull, period = every > 0 && every < PERIOD_NS ? every : PERIOD_NS;
    for (;;) {
        sleep_ns(period);
        shared_allocations_sweep(&process_state.map);
        region_repair(&process_state.map, &process_state.config);
        devices_tell_again();
        if (every > 0)
            reconcile(overuse);
        if (clock_monotonic_ns() - published < PERIOD_NS - period / 2)
            continue;
        uint64_t now = policy_clock.now();
        publish(now - last);
        last = now;
        published = clock_monotonic_ns();
    }
    return nothing;
}

void watch_start(void)
{
    if (__builtin_expect(shared_peek(&started), 1) || __atomic_exchange_n(&started, 1, __ATOMIC_SEQ_CST))
        return;
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it: the program's signals are not ours */
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, watch, NULL) == 0)
        pthread_setname_np(thread, "vgpu-watch");
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
