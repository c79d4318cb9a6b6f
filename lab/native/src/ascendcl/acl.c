/* libascendcl.so, as little of it as a load needs: devices, memory, streams, and kernels that take time and compute nothing.
 * Return codes: CANN's acl_base.h and rt_error_codes.h. */
#define _GNU_SOURCE
#include "npu_core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum acl_code {
    ACL_SUCCESS = 0,
    ACL_UNINITIALIZE = 100001,
    ACL_REPEAT_INITIALIZE = 100002,
    ACL_RT_PARAM_INVALID = 107000,
    ACL_RT_INVALID_DEVICEID = 107001,
    ACL_RT_CONTEXT_NULL = 107002,
    ACL_RT_STREAM_CONTEXT = 107003,
    ACL_RT_MEMORY_ALLOCATION = 207001,
    ACL_RT_RESOURCE_ALLOC_FAIL = 207008,
    ACL_RT_INTERNAL_ERROR = 507000,
    ACL_RT_LOST = 507008
};

struct block {
    struct npu_chip *chip;
    uint32_t slice;
    uint64_t bytes;
    struct block *next;
};

struct stream {
    struct npu_chip *chip;
    uint32_t slice;
    uint64_t done_ns;
};

static bool initialised;
static int current = -1;
static struct npu_view device; /* of `current` */
static uint64_t generation;    /* of its slice: another one may come at its place */
static struct block *blocks;
static pthread_mutex_t here = PTHREAD_MUTEX_INITIALIZER; /* of what stands above */

static void leave(int *held)
{
    npu_unlock(*held);
    pthread_mutex_unlock(&here);
}

#define ENTER(function)                                            \
    if (!initialised)                                              \
        return ACL_UNINITIALIZE;                                   \
    pthread_mutex_lock(&here);                                     \
    __attribute__((cleanup(leave))) int held_lock = npu_lock();    \
    if (held_lock < 0)                                             \
        return ACL_RT_INTERNAL_ERROR;                              \
    int met_fault = npu_fault(#function);                          \
    if (met_fault)                                                 \
        return met_fault
#define NEED(condition) \
    if (!(condition))   \
    return ACL_RT_PARAM_INVALID
#define NEED_DEVICE          \
    if (current < 0)         \
        return ACL_RT_CONTEXT_NULL; \
    if (lost())              \
    return ACL_RT_LOST

static bool lost(void)
{
    return device.chip->gone || (device.slice && (!device.slice->used || device.slice->generation != generation));
}

static uint32_t slice_id(void)
{
    return device.slice ? device.slice->id : 0;
}

EXPORT int aclInit(const char *configuration)
{
    (void)configuration;
    if (initialised)
        return ACL_REPEAT_INITIALIZE;
    if (!npu_attach())
        return ACL_RT_INTERNAL_ERROR;
    initialised = true;
    return ACL_SUCCESS;
}

EXPORT int aclFinalize(void)
{
    initialised = false;
    return ACL_SUCCESS;
}

EXPORT int aclrtGetDeviceCount(uint32_t *count)
{
    ENTER(aclrtGetDeviceCount);
    NEED(count);
    struct npu_view views[NPU_VIEWS];
    *count = npu_views(views);
    return ACL_SUCCESS;
}

EXPORT int aclrtSetDevice(int32_t number)
{
    ENTER(aclrtSetDevice);
    struct npu_view views[NPU_VIEWS];
    unsigned count = npu_views(views);
    if (number < 0 || (unsigned)number >= count)
        return ACL_RT_INVALID_DEVICEID;
    npu_reap(views[number].chip);
    for (unsigned i = 0; !views[number].slice && i < NPU_SLICES; i++)
        if (views[number].chip->slices[i].used)
            return ACL_RT_INVALID_DEVICEID; /* a chip that is cut cannot be used whole */
    if (!npu_own_row(views[number].chip, views[number].slice ? views[number].slice->id : 0))
        return ACL_RT_RESOURCE_ALLOC_FAIL;
    device = views[number];
    generation = device.slice ? device.slice->generation : 0;
    current = number;
    return ACL_SUCCESS;
}

EXPORT int aclrtGetDevice(int32_t *number)
{
    ENTER(aclrtGetDevice);
    NEED(number);
    if (current < 0)
        return ACL_RT_CONTEXT_NULL;
    *number = current;
    return ACL_SUCCESS;
}

/* Gives back everything of the device. */
EXPORT int aclrtResetDevice(int32_t number)
{
    ENTER(aclrtResetDevice);
    if (number != current || current < 0)
        return ACL_RT_INVALID_DEVICEID;
    while (blocks) {
        struct block *b = blocks;
        blocks = b->next;
        free(b);
    }
    struct npu_process *row = npu_own_row(device.chip, slice_id());
    if (row)
        memset(row, 0, sizeof *row);
    current = -1;
    return ACL_SUCCESS;
}

EXPORT const char *aclrtGetSocName(void)
{
    static char name[48];
    if (!initialised || current < 0)
        return NULL;
    strcpy(name, "Ascend");
    strncat(name, device.chip->name, 32);
    return name;
}

/* ---- memory ---- */

EXPORT int aclrtMalloc(void **out, size_t size, int policy)
{
    (void)policy;
    ENTER(aclrtMalloc);
    NEED(out && size);
    NEED_DEVICE;
    npu_reap(device.chip);
    uint64_t most = npu_size_of(&device)->memory_mib << 20, held = npu_held(device.chip, slice_id(), NULL);
    if (size > most || held > most - size)
        return ACL_RT_MEMORY_ALLOCATION;
    struct npu_process *row = npu_own_row(device.chip, slice_id());
    struct block *b = row ? malloc(sizeof *b) : NULL;
    if (!b)
        return ACL_RT_MEMORY_ALLOCATION;
    *b = (struct block){device.chip, slice_id(), size, blocks};
    blocks = b;
    row->bytes += size;
    *out = b;
    return ACL_SUCCESS;
}

EXPORT int aclrtFree(void *pointer)
{
    ENTER(aclrtFree);
    for (struct block **at = &blocks; *at; at = &(*at)->next) {
        struct block *b = *at;
        if (b != pointer)
            continue;
        struct npu_process *row = npu_own_row(b->chip, b->slice);
        if (row)
            row->bytes -= b->bytes < row->bytes ? b->bytes : row->bytes;
        *at = b->next;
        free(b);
        return ACL_SUCCESS;
    }
    return ACL_RT_PARAM_INVALID;
}

/* Of whatever kind of memory: free and total bytes of what this process sees. */
EXPORT int aclrtGetMemInfo(int kind, size_t *available, size_t *total)
{
    (void)kind;
    ENTER(aclrtGetMemInfo);
    NEED(available && total);
    NEED_DEVICE;
    npu_reap(device.chip);
    *total = npu_size_of(&device)->memory_mib << 20;
    *available = *total - npu_held(device.chip, slice_id(), NULL);
    return ACL_SUCCESS;
}

/* ---- streams and kernels ---- */

EXPORT int aclrtCreateStream(struct stream **out)
{
    ENTER(aclrtCreateStream);
    NEED(out);
    NEED_DEVICE;
    struct stream *s = malloc(sizeof *s);
    if (!s)
        return ACL_RT_RESOURCE_ALLOC_FAIL;
    *s = (struct stream){device.chip, slice_id(), 0};
    *out = s;
    return ACL_SUCCESS;
}

EXPORT int aclrtDestroyStream(struct stream *s)
{
    free(s);
    return ACL_SUCCESS;
}

/* Not CANN's: one kernel of so many nanoseconds. Whoever works on a chip or on a slice works there one after the other. */
EXPORT int pumice_npu_launch(struct stream *s, uint64_t ns)
{
    ENTER(pumice_npu_launch);
    NEED(s);
    NEED_DEVICE;
    if (s->chip != device.chip || s->slice != slice_id())
        return ACL_RT_STREAM_CONTEXT;
    uint64_t *until = device.slice ? &device.slice->busy_until_ns : &device.chip->busy_until_ns;
    uint64_t *busy = device.slice ? &device.slice->busy_ns : &device.chip->busy_ns;
    uint64_t now = npu_now_ns(), begin = *until > now ? *until : now;
    *until = s->done_ns = begin + ns;
    *busy += ns;
    return ACL_SUCCESS;
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        ;
}

EXPORT int aclrtSynchronizeStream(struct stream *s)
{
    if (!initialised)
        return ACL_UNINITIALIZE;
    NEED(s);
    sleep_until(s->done_ns);
    return lost() ? ACL_RT_LOST : ACL_SUCCESS;
}
