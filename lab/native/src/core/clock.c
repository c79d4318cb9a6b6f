/* Machine time. Real: CLOCK_MONOTONIC. Virtual: a number that moves to the nearest deadline when every participant waits.
 *
 * A participant whose deadline has come, or that was woken, counts as running until it says otherwise: time cannot run away
 * between the moment it moved and the moment the sleeper's thread is on a processor again. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNNING = 0, WAITING = 1 };

#define REAP_AFTER_NS 20000000 /* real time in which a wait looks for participants that died */
#define SPIN_NS 20000          /* shorter than what the kernel's sleep can do */

uint64_t real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool is_virtual(void)
{
    return the_machine && the_machine->clock.mode == MACHINE_TIME_VIRTUAL;
}

uint64_t machine_now(void)
{
    return is_virtual() ? LOAD(&the_machine->clock.virtual_ns) : real_now();
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};
}

static void tick_wait(uint32_t seen, uint64_t at_most_ns)
{
    struct timespec t = timespec_of(at_most_ns);
    syscall(SYS_futex, &the_machine->clock.tick, FUTEX_WAIT, seen, &t, NULL, 0);
}

static void tick_change(void)
{
    __atomic_add_fetch(&the_machine->clock.tick, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &the_machine->clock.tick, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

static void real_sleep_until(uint64_t deadline)
{
    struct timespec t = timespec_of(deadline);
    uint64_t now = real_now();
    if (deadline > now && deadline - now > SPIN_NS)
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
            ;
    while (real_now() < deadline)
        sched_yield();
}

/* ---- participants; all under clock.lock ---- */

static uint32_t own_tid(void)
{
    static _Thread_local uint32_t tid, of_pid;
    uint32_t pid = (uint32_t)getpid();
    if (of_pid != pid) {
        tid = (uint32_t)syscall(SYS_gettid);
        of_pid = pid;
    }
    return tid;
}

static struct machine_participant *participant(bool make)
{
    struct machine_clock *k = &the_machine->clock;
    struct identity self = identity_self();
    uint32_t tid = own_tid();
    struct machine_participant *gap = NULL;
    for (uint32_t i = 0; i < k->participant_high; i++) {
        struct machine_participant *p = &k->participants[i];
        if (p->pid == self.pid && p->tid == tid && p->pid_namespace == self.pid_namespace &&
            p->start_ticks == self.start_ticks)
            return p;
        if (p->pid == 0 && !gap)
            gap = p;
    }
    if (!make)
        return NULL;
    if (!gap && k->participant_high < MACHINE_PARTICIPANTS)
        gap = &k->participants[k->participant_high++];
    if (gap)
        *gap = (struct machine_participant){.pid = self.pid, .tid = tid, .start_ticks = self.start_ticks,
                                            .pid_namespace = self.pid_namespace};
    return gap;
}

static void reap_participants(void)
{
    struct machine_clock *k = &the_machine->clock;
    uint64_t here = identity_self().pid_namespace;
    for (uint32_t i = 0; i < k->participant_high; i++) {
        struct machine_participant *p = &k->participants[i];
        if (p->pid == 0 || p->pid_namespace != here)
            continue;
        bool thread_gone = syscall(SYS_tgkill, p->pid, p->tid, 0) != 0 && errno == ESRCH;
        if (thread_gone || !identity_alive(p->pid, p->start_ticks, p->pid_namespace))
            p->pid = 0;
    }
}

/* Moves time to the nearest deadline if nobody runs. True: it moved. */
static bool settle(void)
{
    struct machine_clock *k = &the_machine->clock;
    uint64_t nearest = UINT64_MAX;
    for (uint32_t i = 0; i < k->participant_high; i++) {
        const struct machine_participant *p = &k->participants[i];
        if (p->pid == 0)
            continue;
        if (p->waiting != WAITING || p->deadline_ns <= k->virtual_ns)
            return false;
        if (p->deadline_ns < nearest)
            nearest = p->deadline_ns;
    }
    if (nearest == UINT64_MAX)
        return false;
    STORE(&k->virtual_ns, nearest);
    tick_change();
    return true;
}

bool machine_joined(void)
{
    lock_take(&the_machine->clock.lock);
    const struct machine_participant *me = participant(false);
    bool joined = me && me->joined;
    lock_give(&the_machine->clock.lock);
    return joined;
}

static bool changed(const uint32_t *word, uint32_t expected)
{
    return word && LOAD(word) != expected;
}

static void virtual_wait(const uint32_t *word, uint32_t expected, uint64_t deadline)
{
    struct machine_clock *k = &the_machine->clock;
    lock_take(&k->lock);
    struct machine_participant *me = participant(true);
    while (k->virtual_ns < deadline && !changed(word, expected)) {
        if (me) {
            me->deadline_ns = deadline;
            me->waiting = WAITING;
        }
        if (settle())
            continue;
        uint32_t seen = LOAD(&k->tick);
        lock_give(&k->lock);
        uint64_t before = real_now();
        tick_wait(seen, REAP_AFTER_NS);
        lock_take(&k->lock);
        if (real_now() - before >= REAP_AFTER_NS)
            reap_participants();
    }
    if (me) {
        me->waiting = RUNNING;
        if (!me->joined) {
            me->pid = 0;
            settle(); /* the others may have waited for this one */
        }
    }
    lock_give(&k->lock);
}

void machine_sleep_until(uint64_t deadline)
{
    if (is_virtual())
        virtual_wait(NULL, 0, deadline);
    else
        real_sleep_until(deadline);
}

/* A process that ends leaves virtual time at once instead of being found gone. */
void clock_leave(void)
{
    struct identity self = identity_self();
    lock_take(&the_machine->clock.lock);
    for (uint32_t i = 0; i < the_machine->clock.participant_high; i++) {
        struct machine_participant *p = &the_machine->clock.participants[i];
        if (p->pid == self.pid && p->start_ticks == self.start_ticks && p->pid_namespace == self.pid_namespace)
            p->pid = 0;
    }
    if (is_virtual())
        settle();
    lock_give(&the_machine->clock.lock);
}

/* ---- exported ---- */

EXPORT int pumice_machine_time_mode(void)
{
    return machine_attach() ? (int)the_machine->clock.mode : -1;
}

EXPORT uint64_t pumice_machine_now_ns(void)
{
    machine_attach();
    return machine_now();
}

EXPORT int pumice_machine_sleep_until_ns(uint64_t deadline_ns)
{
    bool present = machine_attach();
    machine_sleep_until(deadline_ns);
    return present ? 0 : -1;
}

EXPORT int pumice_machine_sleep_ns(uint64_t ns)
{
    machine_attach();
    uint64_t now = machine_now();
    return pumice_machine_sleep_until_ns(ns < UINT64_MAX - now ? now + ns : UINT64_MAX);
}

EXPORT int pumice_machine_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    if (!word || !machine_attach())
        return -1;
    if (is_virtual()) {
        virtual_wait(word, expected, deadline_ns);
        return changed(word, expected) ? 0 : 1;
    }
    for (;;) {
        uint32_t seen = LOAD(&the_machine->clock.tick);
        uint64_t now = real_now();
        if (changed(word, expected))
            return 0;
        if (now >= deadline_ns)
            return 1;
        uint64_t left = deadline_ns - now;
        tick_wait(seen, left < 1000000000ull ? left : 1000000000ull);
    }
}

EXPORT int pumice_machine_wake(void)
{
    if (!machine_attach())
        return -1;
    struct machine_clock *k = &the_machine->clock;
    if (is_virtual()) {
        lock_take(&k->lock);
        for (uint32_t i = 0; i < k->participant_high; i++)
            k->participants[i].waiting = RUNNING; /* each looks again and says so if it goes on waiting */
        lock_give(&k->lock);
    }
    tick_change();
    return 0;
}

EXPORT int pumice_machine_join(void)
{
    if (!machine_attach())
        return -1;
    lock_take(&the_machine->clock.lock);
    struct machine_participant *me = participant(true);
    if (me)
        me->joined = 1;
    lock_give(&the_machine->clock.lock);
    return me ? 0 : -1;
}

EXPORT int pumice_machine_leave(void)
{
    if (!machine_attach())
        return -1;
    lock_take(&the_machine->clock.lock);
    struct machine_participant *me = participant(false);
    if (me)
        me->pid = 0;
    if (is_virtual())
        settle();
    lock_give(&the_machine->clock.lock);
    return me ? 0 : -1;
}
