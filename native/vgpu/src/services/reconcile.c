#include "services/reconcile.h"

#include "core/log.h"
#include "core/quiet.h"
#include "core/waits.h"
#include "services/guest.h"
#include "services/listed.h"
#include "services/pools.h"
#include "services/underway.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { LOOKS = 4, PATIENT_LOOKS = 20 };
#define PAUSE_NS 100000l

/* Both parts are in the slot's module_size. */
static struct {
    uint64_t modules;  /* claimed by modules */
    uint64_t residue;
    uint64_t settled;  /* the slot's seqlock at the last settling */
} unbooked[REGION_DEVICES];

static pthread_mutex_t unbooked_mutex = PTHREAD_MUTEX_INITIALIZER;

bool reconcile_lock(void)
{
    return mutex_take_in_time(&unbooked_mutex);
}

void reconcile_unlock(void)
{
    pthread_mutex_unlock(&unbooked_mutex);
}

static __thread bool held_for_fork __attribute__((tls_model("initial-exec")));

void reconcile_before_fork(void)
{
    held_for_fork = reconcile_lock();
}

void reconcile_after_fork(bool child)
{
    if (child) {
        unbooked_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        memset(unbooked, 0, sizeof unbooked);
    } else if (held_for_fork) {
        reconcile_unlock();
    }
}

static struct region_slot *own_slot(void)
{
    return region_has_books(&guest.map) ? &guest.map.region->procs[guest.map.slot] : NULL;
}

static uint64_t booked_otherwise(const struct device_memory *used)
{
    return shared_get(&used->context_size) + shared_get(&used->data_size);
}

/*
 * NVML's figure beyond contexts and data. Bookings go on meanwhile: allocations are booked before they happen and frees after, so
 * the larger of the sums before and after can only make the difference too small, unless something came and went in between.
 * Then it is looked at again, and the smallest of the differences counts: nothing is ever booked twice. It is exact where nobody was
 * between books and driver all the while; else what is there may be more.
 */
static bool difference(int device, struct region_slot *own, int looks, uint64_t *beyond, bool *exact)
{
    struct device_memory *used = &own->used[device];
    uint64_t least = UINT64_MAX;
    *exact = false;
    for (int look = 0; look < looks; look++) {
        bool quiet = underway_nobody_else(device);
        uint64_t stamp = shared_get(&own->seqlock), before = booked_otherwise(used), measured = listed_bytes(device);
        if (measured == 0)
            return false;
        uint64_t after = booked_otherwise(used), booked = after > before ? after : before;
        uint64_t more = measured > booked ? measured - booked : 0;
        *exact = quiet && underway_nobody_else(device) && shared_get(&own->seqlock) == stamp;
        least = more < least || *exact ? more : least;
        shared_set(&unbooked[device].settled, *exact ? stamp : UINT64_MAX); /* what was not exact is looked at again */
        shared_set(&own->monitorused[device], measured);
        if (*exact || (looks == LOOKS && shared_get(&own->seqlock) == stamp))
            break;
        if (looks > LOOKS)
            quiet_sleep(PAUSE_NS);
    }
    *beyond = least;
    return true;
}

/* Under the lock, and with no pool between the growth of its reserve and its booking. False: nobody tells. */
static bool look(int device, struct region_slot *own, int looks, uint64_t *beyond, bool *exact)
{
    *exact = false;
    if (!pools_pause())
        return false;
    bool told = difference(device, own, looks, beyond, exact);
    pools_go_on();
    return told;
}

/* Our own booking is no reason to look again. */
static void changed(int device, struct region_slot *own, uint64_t stamp)
{
    if (unbooked[device].settled == stamp)
        shared_set(&unbooked[device].settled, shared_get(&own->seqlock));
}

static void set_residue(int device, struct region_slot *own, uint64_t residue)
{
    uint64_t had = unbooked[device].residue, stamp = shared_get(&own->seqlock);
    __atomic_store_n(&unbooked[device].residue, residue, __ATOMIC_RELAXED);
    if (residue > had)
        backend->charge(&guest.map, device, MEMORY_MODULE, residue - had);
    else if (residue < had)
        backend->release(&guest.map, device, MEMORY_MODULE, had - residue);
    else
        return;
    log_debug("device %d: %llu bytes that no hook saw", device, (unsigned long long)residue);
    changed(device, own, stamp);
}

static uint64_t above(uint64_t bytes, uint64_t known)
{
    return bytes > known ? bytes - known : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void reconcile_settle(int device, bool forced)
{
    struct region_slot *own = own_slot();
    uint64_t beyond;
    bool exact;
    if (own == NULL || (!forced && shared_peek(&unbooked[device].settled) == shared_get(&own->seqlock)) || !reconcile_lock())
        return;
    if (look(device, own, LOOKS, &beyond, &exact)) {
        uint64_t residue = above(beyond, unbooked[device].modules);
        set_residue(device, own, exact ? residue : larger(residue, unbooked[device].residue));
    }
    reconcile_unlock();
}

void reconcile_changed(int device, int64_t by)
{
    struct region_slot *own = own_slot();
    uint64_t beyond = 0, residue = 0;
    bool exact;
    if (own == NULL || !reconcile_lock())
        return;
    bool told = look(device, own, PATIENT_LOOKS, &beyond, &exact);
    if (!exact) /* each of the two figures can only be too small while others are under way */
        residue = by >= 0 || unbooked[device].residue > (uint64_t)-by ? unbooked[device].residue + (uint64_t)by : 0;
    set_residue(device, own, told ? larger(residue, above(beyond, unbooked[device].modules)) : residue);
    reconcile_unlock();
}

bool reconcile_has_residue(int device)
{
    return __atomic_load_n(&unbooked[device].residue, __ATOMIC_RELAXED) > 0;
}

static bool reserve(int device, uint64_t bytes)
{
    return backend->reserve(&guest.map, device, MEMORY_MODULE, bytes) == GRANTED;
}

bool reconcile_expect(int device, uint64_t bytes)
{
    return bytes == 0 || reserve(device, bytes) || (pools_settle(device, true) && reserve(device, bytes));
}

void reconcile_expected(int device, uint64_t bytes)
{
    if (bytes > 0)
        backend->release(&guest.map, device, MEMORY_MODULE, bytes);
}

/* The reserved becomes what it turned out to be. Under the lock. */
static bool adjust(int device, uint64_t reserved, uint64_t actual)
{
    if (actual > reserved)
        return reserve(device, actual - reserved);
    reconcile_expected(device, reserved - actual);
    return true;
}

bool reconcile_claim(int device, uint64_t expected, uint64_t taken, uint64_t *bytes)
{
    struct region_slot *own = own_slot();
    uint64_t beyond, stamp, known;
    bool exact;
    *bytes = 0;
    if (own == NULL || !reconcile_lock()) {
        reconcile_expected(device, expected); /* it becomes residue at the next settling */
        return true;
    }
    known = unbooked[device].modules + unbooked[device].residue;
    if (look(device, own, PATIENT_LOOKS, &beyond, &exact))
        taken = exact ? above(beyond, known) : larger(taken, above(beyond, known));
    stamp = shared_get(&own->seqlock);
    bool fits = adjust(device, expected, taken);
    if (fits) {
        *bytes = taken;
        unbooked[device].modules += taken;
        changed(device, own, stamp);
    }
    reconcile_unlock();
    return fits;
}

void reconcile_return(int device, uint64_t bytes)
{
    if (bytes == 0 || !reconcile_lock())
        return; /* what is not returned becomes residue at the next settling */
    uint64_t held = bytes < unbooked[device].modules ? bytes : unbooked[device].modules;
    unbooked[device].modules -= held;
    backend->release(&guest.map, device, MEMORY_MODULE, held);
    reconcile_unlock();
}

void reconcile_forget(int device)
{
    if (!reconcile_lock())
        return;
    backend->release(&guest.map, device, MEMORY_MODULE, unbooked[device].modules + unbooked[device].residue);
    memset(&unbooked[device], 0, sizeof unbooked[device]);
    reconcile_unlock();
}
