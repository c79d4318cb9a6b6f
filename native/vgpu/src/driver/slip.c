#include "driver/slip.h"

#include "core/log.h"
#include "core/waits.h"
#include "driver/guest.h"
#include "driver/pools.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { NVML_LIST = 256, LOOKS = 4 };
#define BLOCK_GRAIN (2ull << 20) /* the driver takes memory from the card in blocks of this size */

/* Both parts are in the slot's module_size. */
static struct {
    uint64_t modules;  /* claimed by modules */
    uint64_t residue;
    uint64_t settled;  /* the slot's seqlock at the last settling */
} slips[REGION_DEVICES];

static pthread_mutex_t slips_mutex = PTHREAD_MUTEX_INITIALIZER;

bool slip_lock(void)
{
    return mutex_take_in_time(&slips_mutex);
}

void slip_unlock(void)
{
    pthread_mutex_unlock(&slips_mutex);
}

static __thread bool held_for_fork __attribute__((tls_model("initial-exec")));

void slip_before_fork(void)
{
    held_for_fork = slip_lock();
}

void slip_after_fork(bool child)
{
    if (child) {
        slips_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        memset(slips, 0, sizeof slips);
    } else if (held_for_fork) {
        slip_unlock();
    }
}

static struct region_slot *own_slot(void)
{
    return region_has_books(&guest.map) ? &guest.map.region->procs[guest.map.slot] : NULL;
}

uint64_t slip_measured(int device)
{
    const struct real *nvml = guest_nvml();
    struct nvml_process list[NVML_LIST];
    unsigned count = NVML_LIST;
    nvmlDevice handle;
    if (nvml == NULL || INSIDE(nvml->nvmlDeviceGetHandleByIndex_v2((unsigned)device, &handle)) != NVML_SUCCESS)
        return 0;
    nvmlReturn rc = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (nvml->nvmlDeviceGetComputeRunningProcesses_v3 != NULL)
        rc = INSIDE(nvml->nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, list));
    else if (nvml->nvmlDeviceGetComputeRunningProcesses_v2 != NULL)
        rc = INSIDE(nvml->nvmlDeviceGetComputeRunningProcesses_v2(handle, &count, list));
    if (rc != NVML_SUCCESS)
        return 0;
    /* The driver reports the pid of our own namespace (open kernel modules) or of the host, which the monitor writes. */
    struct region_slot *own = own_slot();
    unsigned host = own != NULL ? (unsigned)shared_get(&own->hostpid) : 0, here = (unsigned)getpid();
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid != here && (host == 0 || list[i].pid != host))
            continue;
        if (own != NULL && host == 0)
            shared_set(&own->hostpid, (int32_t)here);
        return list[i].bytes == UINT64_MAX ? 0 : list[i].bytes;
    }
    return 0;
}

static uint64_t booked_otherwise(const struct device_memory *used)
{
    return shared_get(&used->context_size) + shared_get(&used->data_size);
}

/*
 * NVML's figure beyond contexts and data. Bookings go on meanwhile: allocations are booked before they happen and frees after, so
 * the larger of the sums before and after can only make the difference too small, unless something came and went in between.
 * Then it is looked at again, and the smallest of the differences counts: nothing is ever booked twice.
 */
static bool difference(int device, struct region_slot *own, uint64_t *slipped)
{
    struct device_memory *used = &own->used[device];
    uint64_t least = UINT64_MAX;
    for (int look = 0; look < LOOKS; look++) {
        uint64_t stamp = shared_get(&own->seqlock), before = booked_otherwise(used), measured = slip_measured(device);
        if (measured == 0)
            return false;
        uint64_t after = booked_otherwise(used), booked = after > before ? after : before;
        uint64_t beyond = measured > booked ? measured - booked : 0;
        least = beyond < least ? beyond : least;
        shared_set(&own->monitorused[device], measured);
        shared_set(&slips[device].settled, stamp);
        if (shared_get(&own->seqlock) == stamp)
            break;
    }
    *slipped = least;
    return true;
}

/* Under the lock, and with no pool between the growth of its reserve and its booking. False: nobody tells. */
static bool look(int device, struct region_slot *own, uint64_t *slipped)
{
    if (!pools_pause())
        return false;
    bool told = difference(device, own, slipped);
    pools_go_on();
    return told;
}

/* Our own booking is no reason to look again. */
static void changed(int device, struct region_slot *own, uint64_t stamp)
{
    if (slips[device].settled == stamp)
        shared_set(&slips[device].settled, shared_get(&own->seqlock));
}

static void set_residue(int device, struct region_slot *own, uint64_t residue)
{
    uint64_t had = slips[device].residue, stamp = shared_get(&own->seqlock);
    __atomic_store_n(&slips[device].residue, residue, __ATOMIC_RELAXED);
    if (residue > had)
        backend->charge(&guest.map, device, MEMORY_MODULE, residue - had);
    else if (residue < had)
        backend->release(&guest.map, device, MEMORY_MODULE, had - residue);
    else
        return;
    log_debug("device %d: %llu bytes that no hook saw", device, (unsigned long long)residue);
    changed(device, own, stamp);
}

void slip_settle(int device, bool forced)
{
    struct region_slot *own = own_slot();
    uint64_t slipped;
    if (own == NULL || (!forced && shared_peek(&slips[device].settled) == shared_get(&own->seqlock)) || !slip_lock())
        return;
    if (look(device, own, &slipped))
        set_residue(device, own, slipped > slips[device].modules ? slipped - slips[device].modules : 0);
    slip_unlock();
}

void slip_changed(int device, int64_t by)
{
    struct region_slot *own = own_slot();
    uint64_t slipped, residue;
    if (own == NULL || !slip_lock())
        return;
    if (look(device, own, &slipped))
        residue = slipped > slips[device].modules ? slipped - slips[device].modules : 0;
    else
        residue = by >= 0 || slips[device].residue > (uint64_t)-by ? slips[device].residue + (uint64_t)by : 0;
    set_residue(device, own, residue);
    slip_unlock();
}

bool slip_has_residue(int device)
{
    return __atomic_load_n(&slips[device].residue, __ATOMIC_RELAXED) > 0;
}

static bool reserve(int device, uint64_t bytes)
{
    return backend->reserve(&guest.map, device, MEMORY_MODULE, bytes) == GRANTED;
}

bool slip_expect(int device, uint64_t bytes)
{
    return bytes == 0 || reserve(device, bytes) || (pools_settle(device, true) && reserve(device, bytes));
}

void slip_expected(int device, uint64_t bytes)
{
    if (bytes > 0)
        backend->release(&guest.map, device, MEMORY_MODULE, bytes);
}

/* The reserved becomes what it turned out to be. Under the lock. */
static bool adjust(int device, uint64_t reserved, uint64_t actual)
{
    if (actual > reserved)
        return reserve(device, actual - reserved);
    slip_expected(device, reserved - actual);
    return true;
}

bool slip_claim(int device, uint64_t expected, uint64_t taken, uint64_t *bytes)
{
    struct region_slot *own = own_slot();
    uint64_t slipped, stamp, known;
    *bytes = 0;
    if (own == NULL || !slip_lock()) {
        slip_expected(device, expected); /* it becomes residue at the next settling */
        return true;
    }
    known = slips[device].modules + slips[device].residue;
    if (look(device, own, &slipped))
        taken = slipped > known ? slipped - known : 0;
    stamp = shared_get(&own->seqlock);
    bool fits = adjust(device, expected, taken);
    if (fits) {
        *bytes = taken;
        slips[device].modules += taken;
        changed(device, own, stamp);
    }
    slip_unlock();
    return fits;
}

void slip_return(int device, uint64_t bytes)
{
    if (bytes == 0 || !slip_lock())
        return; /* what is not returned becomes residue at the next settling */
    uint64_t held = bytes < slips[device].modules ? bytes : slips[device].modules;
    slips[device].modules -= held;
    backend->release(&guest.map, device, MEMORY_MODULE, held);
    slip_unlock();
}

void slip_block_freed(int device, uint64_t bytes)
{
    uint64_t rounding = (BLOCK_GRAIN - bytes % BLOCK_GRAIN) % BLOCK_GRAIN;
    if (rounding == 0 || __atomic_load_n(&slips[device].residue, __ATOMIC_RELAXED) == 0 || pthread_mutex_trylock(&slips_mutex) != 0)
        return;
    struct region_slot *own = own_slot();
    if (own != NULL)
        set_residue(device, own, slips[device].residue > rounding ? slips[device].residue - rounding : 0);
    slip_unlock();
}

void slip_forget(int device)
{
    if (!slip_lock())
        return;
    backend->release(&guest.map, device, MEMORY_MODULE, slips[device].modules + slips[device].residue);
    memset(&slips[device], 0, sizeof slips[device]);
    slip_unlock();
}
