#include "services/contexts.h"

#include "core/log.h"
#include "services/blocks.h"
#include "services/guest.h"
#include "services/launching.h"
#include "services/free_delta.h"
#include "services/pools.h"
#include "services/reconcile.h"

#include <errno.h>
#include <string.h>

#define MEASURED_MIN (16ll << 20)
#define MEASURED_MAX (2ll << 30) /* more than any context takes: somebody's data, not a context */

/* Primary contexts of this process by region index. bytes is zero while there is none. */
static struct primary {
    uint64_t bytes;
    uint64_t context;
} primaries[REGION_DEVICES];

static uint32_t context_count[REGION_DEVICES]; /* charged contexts of any kind */

void contexts_after_fork(void)
{
    memset(primaries, 0, sizeof primaries);
    memset(context_count, 0, sizeof context_count);
}

static uint64_t booked_by_us(int device)
{
    return !region_has_books(&guest.map) ? 0 : shared_get(&guest.map.region->procs[guest.map.slot].used[device].total);
}

/* Where NVML does not tell what this process has: what the card lost meanwhile, if that can have been a context. */
static uint64_t context_cost_by_card(const struct free_delta *before)
{
    int64_t taken = free_delta_taken(before);
    return taken >= MEASURED_MIN && taken <= MEASURED_MAX ? (uint64_t)taken : guest.config.context_bytes;
}

static uint64_t context_cost(int device, const struct free_delta *before)
{
    uint64_t measured = reconcile_measured(device), booked = booked_by_us(device);
    if (measured <= booked)
        return measured == 0 ? context_cost_by_card(before) : 0;
    return measured - booked < (uint64_t)MEASURED_MAX ? measured - booked : (uint64_t)MEASURED_MAX;
}

static uint64_t charge(int device, const struct free_delta *before)
{
    bool alone = reconcile_lock(); /* what is measured here is not to be taken for something that slipped past */
    uint64_t bytes = context_cost(device, before);
    backend->charge(&guest.map, device, MEMORY_CONTEXT, bytes);
    __atomic_add_fetch(&context_count[device], 1, __ATOMIC_RELAXED);
    if (alone)
        reconcile_unlock();
    if (memory_limit(&guest.map, device) != 0)
        watch_start();
    log_info("device %d: a context of %llu bytes", device, (unsigned long long)bytes);
    return bytes;
}

static void uncharge(int device, uint64_t bytes)
{
    backend->release(&guest.map, device, MEMORY_CONTEXT, bytes);
    if (__atomic_sub_fetch(&context_count[device], 1, __ATOMIC_RELAXED) == 0)
        reconcile_forget(device);
}

bool contexts_any(int device)
{
    return __atomic_load_n(&context_count[device], __ATOMIC_RELAXED) > 0;
}

enum { MEASURING = 1 }; /* stands for the bytes while one thread finds out */

void contexts_primary_began(int device, CUcontext context, const struct free_delta *before)
{
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&primaries[device].bytes, &none, MEASURING, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    int saved = errno;
    uint64_t bytes = charge(device, before);
    primaries[device].context = (uint64_t)(uintptr_t)context;
    __atomic_store_n(&primaries[device].bytes, bytes > MEASURING ? bytes : MEASURING + 1, __ATOMIC_SEQ_CST);
    errno = saved;
}

static void drop_allocation(const struct record *record)
{
    if (record->kind == RECORD_MODULE)
        reconcile_return(record->device, record->bytes);
    else if (record->kind == RECORD_BLOCK)
        blocks_dropped(record);
    else if (record->charged && record->kind != RECORD_CONTEXT && record->kind != RECORD_EXEC)
        guest_release(record->device, record->bytes);
}

/* With a context go its allocations, its events and the graphs made in it. */
static void context_ended(uint64_t context)
{
    if (context != 0)
        records_drop_owner(context, drop_allocation);
    launching_context_ended((CUcontext)(uintptr_t)context);
}

static void primary_ended(int device)
{
    uint64_t bytes = __atomic_exchange_n(&primaries[device].bytes, 0, __ATOMIC_SEQ_CST);
    if (bytes == 0)
        return;
    context_ended(primaries[device].context);
    uncharge(device, bytes > MEASURING + 1 ? bytes : 0);
    pools_settle(device, false);
}

static bool primary_is_active(const struct real *real, CUdevice device)
{
    unsigned flags;
    int active = 0;
    return real->cuDevicePrimaryCtxGetState != NULL &&
           INSIDE(real->cuDevicePrimaryCtxGetState(device, &flags, &active)) == CUDA_SUCCESS && active != 0;
}

void contexts_notice(int device)
{
    if (__atomic_load_n(&context_count[device], __ATOMIC_RELAXED) > 0)
        return;
    const struct real *real = real_cuda();
    CUdevice ordinal = guest.ordinal_of[device];
    CUcontext current = NULL;
    if (ordinal < 0 || !primary_is_active(real, ordinal))
        return;
    if (real->cuCtxGetCurrent != NULL)
        INSIDE(real->cuCtxGetCurrent(&current));
    const struct free_delta unseen = {.device = -1};
    contexts_primary_began(device, current, &unseen); /* it has been there for who knows how long */
}

bool contexts_primary_known(int device)
{
    return __atomic_load_n(&primaries[device].bytes, __ATOMIC_RELAXED) != 0;
}

struct free_delta contexts_before(int device)
{
    int saved = errno;
    struct free_delta before = device < 0 ? (struct free_delta){.device = -1} : free_delta_by_nvml(device);
    errno = saved;
    return before;
}

void contexts_primary_released(int device)
{
    if (!primary_is_active(real_cuda(), guest.ordinal_of[device]))
        primary_ended(device);
}

void contexts_primary_reset(int device)
{
    context_ended(primaries[device].context);
    contexts_primary_released(device);
}

void contexts_made(CUcontext context, int device, const struct free_delta *before)
{
    int saved = errno;
    struct record record = {.key = (uint64_t)(uintptr_t)context, .bytes = charge(device, before), .device = (int16_t)device,
                            .kind = RECORD_CONTEXT, .charged = 1, .references = 1};
    records_insert(&record);
    errno = saved;
}

void contexts_destroyed(CUcontext context)
{
    struct record record;
    if (!records_remove(RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &record))
        return;
    context_ended(record.key);
    uncharge(record.device, record.bytes);
}
