#include "services/contexts.h"

#include "book/records.h"
#include "core/after_fork.h"
#include "core/quiet.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/region_lock.h"
#include "services/blocks.h"
#include "services/launching.h"
#include "services/module_memory.h"
#include "services/pools.h"
#include "services/process_state.h"
#include "services/reconcile.h"
#include "services/shared_allocation.h"

#include <errno.h>
#include <string.h>

#define MEASURED_MIN (16ll << 20)
enum { FIRST_WAITS = 100 }; /* of 50 ms at most */
#define MEASURED_MAX (2ll << 30) /* more than any context takes: somebody's data, not a context */

/* Primary contexts of this process by region index. bytes is zero while there is none. */
static struct primary {
    uint64_t bytes;
    uint64_t context;
} primaries[REGION_DEVICES];

static uint32_t context_count[REGION_DEVICES]; /* charged contexts of any kind */
FORGET_IN_CHILD(primaries);
FORGET_IN_CHILD(context_count);

/* What this process has, where NVML does not tell: what the card lost meanwhile, if that can have been a context. */
static uint64_t context_cost_by_card(const struct free_delta *before)
{
    int64_t taken = free_delta_taken(before);
    return taken >= MEASURED_MIN && taken <= MEASURED_MAX ? (uint64_t)taken : process_state.config.context_bytes;
}

/* No less than the one before, where others allocate and free meanwhile. */
static uint64_t context_cost(const struct context_request *request)
{
    struct memory_sample now = reconcile_sight(request->device, false);
    int64_t grown;
    enum sampled answer = reconcile_growth(&request->seen, &now, &grown);
    if (answer == SAMPLED_NOTHING)
        return context_cost_by_card(&request->before);
    uint64_t measured = grown > 0 ? (uint64_t)grown : 0;
    if (answer == SAMPLED_AT_LEAST && measured < request->reserved)
        measured = request->reserved;
    return measured < (uint64_t)MEASURED_MAX ? measured : (uint64_t)MEASURED_MAX;
}

/* What the last one took, of any process of the container. */
static uint64_t expected_cost(int device)
{
    bool ledger = process_state.map.ledger != NULL;
    uint64_t last = ledger ? ledger_context(&process_state.map, device) : shared_get(&process_state.map.ext->devices[device].context_bytes);
    return last > 0 && last <= (uint64_t)MEASURED_MAX ? last : process_state.config.context_bytes;
}

/*
 * The first of a container is made alone: what a context takes is not known before, and a dozen at once would take a dozen times too
 * much. Drivers may take their time; somebody who takes longer than any is not waited for.
 */
static bool await_first(int device)
{
    struct ext_device *known = &process_state.map.ext->devices[device];
    if (process_state.map.ledger != NULL)
        return ledger_first_context(&process_state.map, device);
    for (int attempt = 0; attempt < FIRST_WAITS && shared_get(&known->context_bytes) == 0; attempt++) {
        struct wait wait = {0, 0};
        if (region_lock_take(&process_state.map, &known->context_lock, &wait))
            return true;
    }
    return false;
}

static void end_request(const struct context_request *request)
{
    if (request->first && process_state.map.ledger != NULL)
        ledger_first_context_made(&process_state.map, request->device);
    else if (request->first)
        region_lock_give(&process_state.map.ext->devices[request->device].context_lock);
    underway_end(request->device);
}

/* NVML does not name a process that has nothing. */
static struct memory_sample had_nothing(int64_t net)
{
    return (struct memory_sample){.answer = SAMPLED_EXACTLY, .known = true, .net = net, .stamp = SAMPLED_BEFORE_ALL};
}

bool contexts_begin(struct context_request *request, int device)
{
    KEEP_ERRNO;
    *request = (struct context_request){.device = device, .before = {.device = -1}};
    request->listed.count = -1;
    underway_begin(device);
    if (device >= 0) {
        if (!contexts_any(device))
            listed_look(device, &request->listed);
        if (memory_limit(&process_state.map, device) != 0) {
            request->first = region_has_books(&process_state.map) && await_first(device);
            request->reserved = expected_cost(device);
            if (!process_reserve_as(device, MEMORY_CONTEXT, request->reserved)) {
                process_tell_refusal(device, request->reserved);
                end_request(request);
                return false;
            }
        }
        request->seen = reconcile_sight(device, false);
        if (request->seen.answer == SAMPLED_NOTHING)
            request->seen = had_nothing(-(int64_t)request->reserved);
        request->before = free_delta_by_nvml(device);
    }
    return true;
}

void contexts_failed(const struct context_request *request)
{
    if (request->reserved > 0)
        backend->release(&process_state.map, request->device, MEMORY_CONTEXT, request->reserved);
    end_request(request);
}

/* What it was expected to take becomes what it took; false when that does not fit, and contexts_failed is to follow once it is gone. */
static bool commit(const struct context_request *request, bool whatever, uint64_t *bytes)
{
    int device = request->device;
    listed_learn(device, &request->listed);
    *bytes = context_cost(request);
    bool fits = true;
    if (*bytes > 0)
        shared_set(&process_state.map.ext->devices[device].context_bytes, *bytes);
    if (*bytes > 0 && process_state.map.ledger != NULL)
        ledger_context_took(&process_state.map, device, *bytes);
    if (*bytes < request->reserved)
        backend->release(&process_state.map, device, MEMORY_CONTEXT, request->reserved - *bytes);
    else if (whatever || memory_limit(&process_state.map, device) == 0)
        backend->charge(&process_state.map, device, MEMORY_CONTEXT, *bytes - request->reserved);
    else if (*bytes > request->reserved)
        fits = process_reserve_as(device, MEMORY_CONTEXT, *bytes - request->reserved);
    if (fits) {
        __atomic_add_fetch(&context_count[device], 1, __ATOMIC_RELAXED);
        end_request(request);
    }
    if (fits && memory_limit(&process_state.map, device) != 0)
        watch_start();
    if (fits)
        log_info("device %d: a context of %llu bytes", device, (unsigned long long)*bytes);
    else
        process_tell_refusal(device, *bytes);
    return fits;
}

static void uncharge(int device, uint64_t bytes)
{
    backend->release(&process_state.map, device, MEMORY_CONTEXT, bytes);
    if (__atomic_sub_fetch(&context_count[device], 1, __ATOMIC_RELAXED) == 0)
        reconcile_forget(device);
}

bool contexts_any(int device)
{
    return shared_peek(&context_count[device]) > 0;
}

enum { MEASURING = 1 }; /* stands for the bytes while one thread finds out */

static bool primary_began(const struct context_request *request, CUcontext context, bool whatever)
{
    int device = request->device;
    uint64_t none = 0, bytes;
    if (!shared_swap_if(&primaries[device].bytes, &none, MEASURING)) {
        contexts_failed(request); /* another thread books it */
        return true;
    }
    KEEP_ERRNO;
    bool fits = commit(request, whatever, &bytes);
    primaries[device].context = (uint64_t)(uintptr_t)context;
    shared_set(&primaries[device].bytes, !fits ? 0 : bytes > MEASURING ? bytes : MEASURING + 1);
    return fits;
}

bool contexts_primary_began(const struct context_request *request, CUcontext context)
{
    return primary_began(request, context, false);
}

static void drop_allocation(const struct record *record)
{
    if (record->kind == RECORD_ARRAY)
        suballocation_paid(record->device, WITH_ARRAYS, -(int64_t)record->bytes);
    if (record->kind == RECORD_MODULE)
        module_dropped(record);
    else if (record->kind == RECORD_LIMITS)
        reconcile_return(record->device, &(struct claim){record->bytes, 0});
    else if (record->kind == RECORD_BLOCK)
        blocks_dropped(record);
    else if (record->shared_allocation != 0)
        shared_allocation_let_go(record->shared_allocation);
    else if (record->charged && record->kind != RECORD_CONTEXT && record->kind != RECORD_EXEC)
        process_release(record->device, record->bytes);
}

/* With a context go its allocations, its events and the graphs made in it. */
static void context_ended(uint64_t context)
{
    if (context != 0)
        records_drop_owner(context, drop_allocation);
    launching_context_ended((CUcontext)(uintptr_t)context);
    late_loading_forget();
}

static void primary_ended(int device)
{
    uint64_t bytes = __atomic_exchange_n(&primaries[device].bytes, 0, __ATOMIC_SEQ_CST);
    if (bytes == 0)
        return;
    context_ended(primaries[device].context);
    uncharge(device, bytes > MEASURING + 1 ? bytes : 0);
    pools_reconcile(device, false);
}

static bool primary_is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return CUDA(cuDevicePrimaryCtxGetState(device, &flags, &active)) == CUDA_SUCCESS && active != 0;
}

void contexts_notice(int device)
{
    if (shared_peek(&context_count[device]) > 0)
        return;
    CUdevice ordinal = process_state.ordinal_of[device];
    CUcontext current = NULL;
    if (ordinal < 0 || !primary_is_active(ordinal))
        return;
    CUDA(cuCtxGetCurrent(&current));
    struct context_request unseen = {.device = device, .seen = had_nothing(0), .before = {.device = -1}};
    unseen.listed.count = -1;
    underway_begin(device);
    primary_began(&unseen, current, true); /* it has been there for who knows how long */
}

bool contexts_primary_known(int device)
{
    return shared_peek(&primaries[device].bytes) != 0;
}

void contexts_primary_released(int device)
{
    if (!primary_is_active(process_state.ordinal_of[device]))
        primary_ended(device);
}

void contexts_primary_reset(int device)
{
    context_ended(primaries[device].context);
    contexts_primary_released(device);
}

bool contexts_made(const struct context_request *request, CUcontext context)
{
    KEEP_ERRNO;
    uint64_t bytes;
    bool fits = commit(request, false, &bytes);
    struct record record = {.key = (uint64_t)(uintptr_t)context, .bytes = bytes, .device = (int16_t)request->device,
                            .kind = RECORD_CONTEXT, .charged = 1, .references = 1};
    if (fits)
        records_insert(&record);
    return fits;
}

int contexts_ending(CUcontext context)
{
    struct record record;
    int device = records_find(RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &record) ? record.device : -1;
    underway_begin(device);
    return device;
}

void contexts_destroyed(CUcontext context)
{
    struct record record;
    if (!records_remove(RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &record))
        return;
    context_ended(record.key);
    uncharge(record.device, record.bytes);
}

/* ---- green contexts ---- */

static uint32_t greens; /* how many there are: nobody looks for one where there is none */
FORGET_IN_CHILD(greens);

void greens_begin(int device)
{
    if (device >= 0)
        moves_begin(device);
}

void greens_end(int device)
{
    if (device >= 0)
        reconcile_changed(device, 0);
}

CUcontext greens_primary(CUdevice ordinal)
{
    CUcontext primary = NULL;
    if (CUDA(cuDevicePrimaryCtxRetain(&primary, ordinal)) == CUDA_SUCCESS)
        CUDA(cuDevicePrimaryCtxRelease_v2(ordinal));
    return primary;
}

static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context = NULL;
    bool told = CUDA(cuCtxFromGreenCtx(&context, green)) == CUDA_SUCCESS;
    return told ? context : NULL;
}

void greens_made(CUgreenCtx green, int device, CUcontext primary)
{
    struct record record = {.key = (uint64_t)(uintptr_t)context_of(green), .owner = (uint64_t)(uintptr_t)primary,
                            .device = (int16_t)device, .kind = RECORD_GREEN, .references = 1};
    if (record.key != 0 && records_insert(&record))
        __atomic_add_fetch(&greens, 1, __ATOMIC_RELAXED);
}

int greens_device(CUgreenCtx green, CUcontext *context)
{
    struct record record;
    if (shared_peek(&greens) == 0)
        return -1;
    *context = context_of(green);
    return *context != NULL && records_find(RECORD_GREEN, (uint64_t)(uintptr_t)*context, &record) ? record.device : -1;
}

void greens_gone(CUcontext context, int device)
{
    struct record record;
    if (!records_remove(RECORD_GREEN, (uint64_t)(uintptr_t)context, &record))
        return;
    __atomic_sub_fetch(&greens, 1, __ATOMIC_RELAXED);
    launching_context_ended(context);
    contexts_primary_released(device);
}

uint64_t greens_owner(uint64_t context)
{
    struct record record;
    bool green = shared_peek(&greens) > 0 && records_find(RECORD_GREEN, context, &record);
    return green ? record.owner : context;
}
