/*
 * cuCtxSetLimit: the stacks of all threads that fit on the card, the buffer of printf and the heap of malloc are device memory of the
 * context (spec hami-core 7.2). What a larger one can take at most is reserved before, and becomes what it took.
 */
#include "services/guest.h"
#include "services/free_delta.h"
#include "services/reconcile.h"

#include <errno.h>

#define BLOCK (2ull << 20)
enum { LIMIT_STACK_SIZE = 0, LIMIT_PRINTF_FIFO_SIZE = 1, LIMIT_MALLOC_HEAP_SIZE = 2 };

static uint64_t threads_of_card(const struct real *real, int ordinal)
{
    int processors = 0, threads = 0;
    if (real->cuDeviceGetAttribute == NULL ||
        INSIDE(real->cuDeviceGetAttribute(&processors, DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal)) != CUDA_SUCCESS ||
        INSIDE(real->cuDeviceGetAttribute(&threads, DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal)) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

/* 0 when it becomes no larger, or is none of the three. */
static uint64_t growth(const struct real *real, int device, int limit, size_t value)
{
    size_t before = 0;
    uint64_t each = limit == LIMIT_STACK_SIZE ? threads_of_card(real, guest.ordinal_of[device]) : 1, bytes;
    if (limit < LIMIT_STACK_SIZE || limit > LIMIT_MALLOC_HEAP_SIZE || real->cuCtxGetLimit == NULL ||
        INSIDE(real->cuCtxGetLimit(&before, limit)) != CUDA_SUCCESS || value <= before)
        return 0;
    return __builtin_mul_overflow(value - before, each, &bytes) || bytes > INT64_MAX - BLOCK ? INT64_MAX
                                                                                             : (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

CUresult cuCtxSetLimit(int limit, size_t value)
{
    const struct real *real = real_cuda();
    int device = guest_serves() ? guest_current_device(real) : -1;
    if (device < 0 || memory_limit(&guest.map, device) == 0)
        return INSIDE(real->cuCtxSetLimit(limit, value));
    int saved = errno;
    uint64_t expected = growth(real, device, limit, value);
    if (!reconcile_expect(device, expected)) {
        guest_tell_refusal(device, expected);
        errno = saved;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct free_delta before = free_delta_in_context(device);
    CUresult rc = INSIDE(real->cuCtxSetLimit(limit, value));
    saved = errno;
    if (rc == CUDA_SUCCESS) {
        int64_t taken = free_delta_taken(&before), most = (int64_t)expected;
        reconcile_changed(device, expected == 0 ? (taken < 0 ? taken : 0) : taken < 0 ? 0 : taken < most ? taken : most, expected);
    } else {
        reconcile_expected(device, expected);
    }
    errno = saved;
    return rc;
}
