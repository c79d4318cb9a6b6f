/*
 * The library's one thread, started by the first launch under a core limit: it publishes the share of GPU time that this
 * process used, once a second, and zero when the process has fallen silent. It calls no driver.
 */
#include "driver/launching.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define PERIOD_NS 1000000000l
enum { STACK_BYTES = 256 * 1024 };

static int started;
static int64_t busy_ns[REGION_DEVICES];

void watch_after_fork(void)
{
    started = 0;
    memset(busy_ns, 0, sizeof busy_ns);
}

void watch_count(int device, int64_t ns)
{
    __atomic_fetch_add(&busy_ns[device], ns, __ATOMIC_RELAXED);
}

static void publish(uint64_t span_ns)
{
    for (int device = 0; device < REGION_DEVICES; device++) {
        int64_t busy = __atomic_exchange_n(&busy_ns[device], 0, __ATOMIC_RELAXED);
        uint64_t percent = busy <= 0 || span_ns == 0 ? 0 : (uint64_t)busy * 100 / span_ns;
        int slot = guest.map.slot;
        if (region_has_books(&guest.map))
            __atomic_store_n(&guest.map.region->procs[slot].device_util[device].sm_util, percent > 100 ? 100 : percent,
                             __ATOMIC_RELAXED);
    }
}

static void *watch(void *nothing)
{
    uint64_t last = policy_clock.now();
    for (;;) {
        struct timespec period = {PERIOD_NS / 1000000000l, PERIOD_NS % 1000000000l};
        nanosleep(&period, NULL);
        uint64_t now = policy_clock.now();
        publish(now - last);
        last = now;
    }
    return nothing;
}

void watch_start(void)
{
    if (__builtin_expect(__atomic_load_n(&started, __ATOMIC_RELAXED), 1) || __atomic_exchange_n(&started, 1, __ATOMIC_SEQ_CST))
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
