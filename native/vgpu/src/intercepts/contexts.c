/* Entries that make and end contexts; what they cost is in services/contexts.h. */
#include "intercepts/entries.h"

#include "core/numbers.h"
#include "core/quiet.h"
#include "services/blocks.h"
#include "services/contexts.h"
#include "services/nvml.h"
#include "services/process_state.h"
#include "services/reconcile.h"

#include <errno.h>

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    int device = process_serves() ? process_device(ordinal) : -1;
    if (device < 0 || contexts_primary_known(device))
        return CUDA(cuDevicePrimaryCtxRetain(context, ordinal));
    struct context_request request;
    if (!contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = CUDA(cuDevicePrimaryCtxRetain(context, ordinal));
    if (rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (!contexts_primary_began(&request, *context)) {
        CUDA(cuDevicePrimaryCtxRelease_v2(ordinal));
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

CUresult context_created(CUresult rc, const CUcontext *context, const struct context_request *request)
{
    if (request->device < 0)
        return rc;
    if (rc != CUDA_SUCCESS) {
        contexts_failed(request);
    } else if (!contexts_made(request, *context)) {
        CUDA(cuCtxDestroy_v2(*context));
        contexts_failed(request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

bool context_is_over(CUcontext context)
{
    unsigned version;
    return context != NULL && CUDA(cuCtxGetApiVersion(context, &version)) != CUDA_SUCCESS;
}

/* A part of the card's processors (services/contexts.h): the first on a device may make its primary context. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice ordinal, unsigned flags)
{
    int device = process_serves() ? process_device(ordinal) : -1;
    struct context_request request = {.device = -1};
    bool first = device >= 0 && !contexts_primary_known(device);
    if (first && !contexts_begin(&request, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    greens_begin(first ? -1 : device);
    CUresult rc = CUDA(cuGreenCtxCreate(green, resources, ordinal, flags));
    greens_end(first ? -1 : device);
    CUcontext primary = rc == CUDA_SUCCESS && device >= 0 ? greens_primary(ordinal) : NULL;
    if (first && rc != CUDA_SUCCESS) {
        contexts_failed(&request);
    } else if (first && !contexts_primary_began(&request, primary)) {
        CUDA(cuGreenCtxDestroy(*green));
        contexts_failed(&request);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (primary != NULL) {
        greens_made(*green, device, primary);
    }
    return rc;
}

/* With the last of them, where nobody else retained it, the primary context ends. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context = NULL;
    int device = process_serves() ? greens_device(green, &context) : -1;
    greens_begin(device);
    CUresult rc = CUDA(cuGreenCtxDestroy(green));
    if (device >= 0 && rc == CUDA_SUCCESS)
        greens_gone(context, device); /* before anybody compares: the primary context may have gone with it */
    greens_end(device);
    return rc;
}

/*
 * cuCtxSetLimit: the stacks of all threads that fit on the card, the buffer of printf and the heap of malloc are device memory of the
 * context (HAMi-core src/cuda). What a larger one can take at most is reserved before, and becomes what NVML's figure says it took, before
 * and after; it is claimed in the context's name and ends with it.
 */
enum { LIMIT_STACK_SIZE = 0, LIMIT_PRINTF_FIFO_SIZE = 1, LIMIT_MALLOC_HEAP_SIZE = 2 };

static uint64_t threads_of_card(int ordinal)
{
    int processors = 0, threads = 0;
    if (CUDA(cuDeviceGetAttribute(&processors, DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal)) != CUDA_SUCCESS ||
        CUDA(cuDeviceGetAttribute(&threads, DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal)) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

/* What the device has more or less of, at most, by the change of one of the three; 0 of others. */
static uint64_t at_most(int device, int limit, size_t value, bool *grows)
{
    size_t before = 0;
    uint64_t each = limit == LIMIT_STACK_SIZE ? threads_of_card(process_state.ordinal_of[device]) : 1;
    bool told = limit >= LIMIT_STACK_SIZE && limit <= LIMIT_MALLOC_HEAP_SIZE && CUDA(cuCtxGetLimit(&before, limit)) == CUDA_SUCCESS;
    *grows = told && value > before;
    if (!told)
        return 0;
    return blocks_bytes(mul_u64(*grows ? value - before : before - value, each));
}

static int64_t clipped(int64_t bytes, uint64_t most)
{
    return bytes <= 0 ? 0 : (uint64_t)bytes < most ? bytes : (int64_t)most;
}

/* Where nobody can say, as others book meanwhile, it is all that was expected; and whether what was let go is gone, the next looks say. */
static void commit(int device, bool grows, uint64_t most, const struct memory_sample *seen, const struct free_delta *before)
{
    struct memory_sample now = reconcile_sight(device, true);
    int64_t grown;
    uint64_t context = process_current_context(), expected = grows ? most : 0;
    enum sampled answer = reconcile_growth(seen, &now, &grown);
    if (answer == SAMPLED_NOTHING)
        grown = clipped(free_delta_taken(before), expected) - (grows ? 0 : clipped(-free_delta_taken(before), INT64_MAX));
    else if (answer == SAMPLED_AT_LEAST)
        grown = grows ? (int64_t)most : -(int64_t)most;
    uint64_t more = (uint64_t)clipped(grown, INT64_MAX), less = records_take(RECORD_LIMITS, context, (uint64_t)clipped(-grown, INT64_MAX));
    struct record claimed = {.key = context, .bytes = more, .owner = context, .device = (int16_t)device, .kind = RECORD_LIMITS,
                             .charged = 1, .references = 1};
    if (more > 0)
        records_add(&claimed);
    if (answer == SAMPLED_AT_LEAST)
        reconcile_doubt(device, less);
    else
        reconcile_return(device, &(struct claim){less, 0});
    reconcile_took(device, expected, more);
}

CUresult cuCtxSetLimit(int limit, size_t value)
{
    int device = process_serves() ? process_current_device() : -1;
    if (device < 0 || memory_limit(&process_state.map, device) == 0)
        return CUDA(cuCtxSetLimit(limit, value));
    KEEP_ERRNO;
    bool grows;
    uint64_t most = at_most(device, limit, value, &grows), expected = grows ? most : 0;
    if (!reconcile_expect(device, expected)) {
        process_tell_refusal(device, expected);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct memory_sample seen = reconcile_sight(device, true);
    struct free_delta before = free_delta_in_context(device);
    CUresult rc = CUDA(cuCtxSetLimit(limit, value));
    if (rc == CUDA_SUCCESS)
        commit(device, grows, most, &seen, &before);
    else
        reconcile_expected(device, expected);
    return rc;
}
