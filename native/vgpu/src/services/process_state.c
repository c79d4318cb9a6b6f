#include "services/process_state.h"

#include "core/after_fork.h"
#include "core/attach.h"
#include "core/granted.h"
#include "core/quiet.h"
#include "core/shared_allocations.h"
#include "core/log.h"
#include "core/slots.h"
#include "core/waits.h"
#include "policy/usage.h"
#include "services/bindings.h"
#include "services/blocks.h"
#include "services/contexts.h"
#include "services/shared_allocation.h"
#include "services/launching.h"
#include "services/nvml.h"
#include "services/pools.h"
#include "services/reconcile.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct process_state process_state;
int process_attached;

static int underway[REGION_DEVICES];
static __thread int underway_here[REGION_DEVICES] __attribute__((tls_model("initial-exec")));

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(attaching);
FORGET_IN_CHILD(underway);
static int exit_registered, fork_registered;

/* Of the container, not of the process: what was mapped once is there for its children, too. */
static const struct limits_page *page_of_the_container(void)
{
    static const struct limits_page *mapped;
    const char *problem = NULL;
    if (mapped == NULL)
        mapped = granted_page(LIMITS_PAGE_PATH, &problem);
    if (problem != NULL)
        log_error("%s: %s; there is no memory to be had", LIMITS_PAGE_PATH, problem);
    return mapped;
}

static const char *environment(const char *name)
{
    return getenv(name);
}

/* The parent's slot, locks, records and events are not the child's: it starts as a process that never used the GPU. */
static void forget_parent(void)
{
    KEEP_ERRNO;
    activity_before_forgetting();
    forget_in_child();
    memset(underway_here, 0, sizeof underway_here);
    if (process_attached)
        region_forget(&process_state.map);
    process_attached = 0;
}

static void leave_region(void)
{
    if (__atomic_load_n(&process_attached, __ATOMIC_ACQUIRE) && process_state.map.region != NULL)
        shared_allocations_leave_slot(&process_state.map);
}

bool process_attach(void)
{
    KEEP_ERRNO;
    inside_driver++; /* what attaching looks up is not the program's business */
    mutex_take(&attaching);
    if (!process_attached) {
        const struct limits_page *page = page_of_the_container();
        config_read(&process_state.config, environment);
        if (page != NULL)
            config_obey(&process_state.config, page);
        region_attach(&process_state.map, &process_state.config);
        if (process_state.map.ledger != NULL)
            usage_open(&process_state.map);
        process_state.device_count = 0;
        if (process_state.map.region != NULL) {
            if (!fork_registered++)
                pthread_atfork(reconcile_before_fork, reconcile_after_fork, forget_parent);
            if (!exit_registered++)
                atexit(leave_region);
            backend_choose(&process_state.map, &process_state.config);
            log_info("attached to %s, slot %d%s", process_state.map.path, process_state.map.slot, process_state.map.shared ? "" : " (private)");
            __atomic_store_n(&process_attached, 1, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&attaching);
    inside_driver--;
    return process_attached != 0;
}

/* Programs ask for more than there is in the ordinary course of things and go on: a line for whoever looks for it. */
void process_tell_refusal(int device, uint64_t bytes)
{
    log_info("out of memory: device %d, %llu bytes asked for, %llu of %llu in use", device, (unsigned long long)bytes,
             (unsigned long long)memory_used(&process_state.map, device), (unsigned long long)memory_limit(&process_state.map, device));
}

bool process_reserve_as(int device, enum memory_type type, uint64_t bytes)
{
    return backend->reserve(&process_state.map, device, type, bytes) == GRANTED ||
           ((pools_reconcile(device, true) | reconcile_gives_back(device)) &&
            backend->reserve(&process_state.map, device, type, bytes) == GRANTED);
}

bool process_reserve_silently(int device, enum memory_type type, uint64_t bytes)
{
    KEEP_ERRNO;
    contexts_notice(device);
    return process_reserve_as(device, type, bytes);
}

bool process_reserve(int device, uint64_t bytes)
{
    bool granted = process_reserve_silently(device, MEMORY_DATA, bytes);
    if (!granted)
        process_tell_refusal(device, bytes);
    return granted;
}

void process_release(int device, uint64_t bytes)
{
    backend->release(&process_state.map, device, MEMORY_DATA, bytes);
}

uint64_t process_current_context(void)
{
    CUcontext context = NULL;
    if (CUDA(cuCtxGetCurrent(&context)) != CUDA_SUCCESS)
        return 0;
    return greens_owner((uint64_t)(uintptr_t)context);
}

void process_note(enum record_kind kind, uint64_t key, int device, uint64_t bytes, bool charged)
{
    struct record record = {.key = key, .bytes = bytes, .owner = process_current_context(), .device = (int16_t)device,
                            .kind = (uint8_t)kind, .charged = charged, .references = 1};
    if (!records_insert(&record))
        log_error("no memory for a record of %llu bytes: they stay booked until the process ends", (unsigned long long)bytes);
}

CUresult process_commit(CUresult rc, enum record_kind kind, uint64_t key, int device, uint64_t bytes)
{
    if (rc == CUDA_SUCCESS && kind == RECORD_ARRAY)
        suballocation_paid(device, WITH_ARRAYS, (int64_t)bytes);
    if (rc == CUDA_SUCCESS)
        process_note(kind, key, device, bytes, true);
    else
        process_release(device, bytes);
    return rc;
}

void process_gone(const struct record *record)
{
    if (record->kind == RECORD_HANDLE && record->device < 0)
        bindings_ended(record->key); /* a multicast object, for all that is known */
    if (record->shared_allocation != 0)
        shared_allocation_let_go(record->shared_allocation);
    if (record->kind == RECORD_LINEAR && !record->charged)
        blocks_left(record->device, record->key, record->bytes);
    else if (record->kind == RECORD_ARRAY)
        suballocation_released(record->device, WITH_ARRAYS, record->bytes);
    else if (record->charged && record->shared_allocation == 0)
        process_release(record->device, record->bytes);
}

struct parting process_part(enum record_kind kind, uint64_t key)
{
    struct parting parting = {.record = {.key = key, .kind = (uint8_t)kind}};
    /* Before the driver frees it: afterwards another thread may be given the same address at once. */
    parting.known = records_remove(kind, key, &parting.record);
    if (parting.known && kind != RECORD_MODULE) /* what modules take is what is looked for */
        underway_begin(parting.record.device);
    return parting;
}

CUresult process_parted(CUresult rc, const struct parting *parting)
{
    if (!parting->known) {
        if (rc == CUDA_SUCCESS && parting->record.kind == RECORD_LINEAR)
            pools_block_freed(parting->record.key);
        return rc;
    }
    if (rc == CUDA_SUCCESS)
        process_gone(&parting->record);
    else
        records_insert(&parting->record);
    underway_end(parting->record.device);
    return rc;
}

static void count_underway(int device, int by)
{
    if (device < 0)
        return;
    underway_here[device] += by;
    shared_add(&underway[device], by);
}

void underway_begin(int device)
{
    count_underway(device, 1);
}

void underway_end(int device)
{
    count_underway(device, -1);
}

bool underway_nobody_else(int device)
{
    return shared_get(&underway[device]) == underway_here[device];
}
