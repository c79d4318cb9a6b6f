/* Changes that a test or `pumice machine set` makes to a machine from outside. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Control acts on any directory; the library's own machine stays what it is. Locks are held on the mapping given. */
static struct machine_state *open_machine(const char *dir)
{
    struct machine_state *m = dir ? machine_map(dir) : machine_attach() ? the_machine : NULL;
    if (!m)
        errno = ENOENT;
    return m;
}

static void close_machine(struct machine_state *m)
{
    if (m != the_machine)
        machine_unmap(m);
}

EXPORT int pumice_machine_raise_xid(const char *dir, unsigned card, uint64_t xid)
{
    struct machine_state *m = open_machine(dir);
    if (!m)
        return -1;
    int rc = -1;
    if (card < m->cards) {
        lock_take(&m->lock);
        uint64_t sequence = m->xid_sequence + 1;
        struct machine_xid *x = &m->xids[(sequence - 1) % MACHINE_XIDS];
        STORE(&x->sequence, 0);
        x->time_ns = m->clock.mode == MACHINE_TIME_VIRTUAL ? LOAD(&m->clock.virtual_ns) : real_now();
        x->xid = xid;
        x->event_type = 8;
        x->card = card;
        x->gi_id = x->ci_id = MACHINE_NONE;
        STORE(&x->sequence, sequence);
        STORE(&m->xid_sequence, sequence);
        lock_give(&m->lock);
        __atomic_add_fetch(&m->xid_futex, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &m->xid_futex, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
        __atomic_add_fetch(&m->clock.tick, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &m->clock.tick, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
        rc = 0;
    } else {
        errno = EINVAL;
    }
    close_machine(m);
    return rc;
}

static struct machine_fault *free_fault(struct machine_state *m)
{
    for (unsigned i = 0; i < MACHINE_FAULTS; i++)
        if (!m->faults[i].used)
            return &m->faults[i];
    return NULL;
}

EXPORT int pumice_machine_set_fault(const char *dir, const char *function, int code, uint64_t first, uint64_t count,
                                    uint64_t delay_ns, int crash)
{
    if (!function || !*function || strlen(function) >= sizeof(((struct machine_fault *)0)->function)) {
        errno = EINVAL;
        return -1;
    }
    struct machine_state *m = open_machine(dir);
    if (!m)
        return -1;
    lock_take(&m->lock);
    struct machine_fault *f = free_fault(m);
    if (f) {
        memset(f, 0, sizeof *f);
        strcpy(f->function, function);
        f->code = code;
        f->first = first ? first : 1;
        f->count = count;
        f->delay_ns = delay_ns;
        f->card = MACHINE_NONE;
        f->crash = crash != 0;
        STORE(&f->used, 1);
        __atomic_add_fetch(&m->fault_count, 1, __ATOMIC_RELEASE);
    }
    lock_give(&m->lock);
    close_machine(m);
    if (!f)
        errno = ENOSPC;
    return f ? 0 : -1;
}

EXPORT int pumice_machine_clear_faults(const char *dir)
{
    struct machine_state *m = open_machine(dir);
    if (!m)
        return -1;
    lock_take(&m->lock);
    for (unsigned i = 0; i < MACHINE_FAULTS; i++)
        STORE(&m->faults[i].used, 0);
    STORE(&m->fault_count, 0);
    lock_give(&m->lock);
    close_machine(m);
    return 0;
}

EXPORT int pumice_machine_advance_ns(const char *dir, uint64_t ns)
{
    struct machine_state *m = open_machine(dir);
    if (!m)
        return -1;
    int rc = m->clock.mode == MACHINE_TIME_VIRTUAL ? 0 : -1;
    if (rc == 0) {
        lock_take(&m->clock.lock);
        STORE(&m->clock.virtual_ns, m->clock.virtual_ns + ns);
        lock_give(&m->clock.lock);
        __atomic_add_fetch(&m->clock.tick, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &m->clock.tick, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    } else {
        errno = EINVAL;
    }
    close_machine(m);
    return rc;
}
