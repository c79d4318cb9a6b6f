/* Contexts: each costs memory on its card; a thread has a stack of them. */
#define _GNU_SOURCE
#include "cuda.h"
#include "objects.h"

#include <string.h>

#define STACK 64

static _Thread_local struct { CUcontext contexts[STACK]; unsigned depth; } own;

CUcontext context_on_top(void)
{
    return own.depth ? own.contexts[own.depth - 1] : NULL;
}

struct context *context_of(CUcontext handle)
{
    return handle_get(K_CONTEXT, handle);
}

struct context *context_chosen(void)
{
    return own.depth ? handle_get(K_CONTEXT, own.contexts[own.depth - 1]) : NULL;
}

struct context *context_current(void)
{
    struct context *chosen = context_chosen();
    return __builtin_expect(chosen && chosen->green, 0) ? handle_get(K_CONTEXT, chosen->parent) : chosen;
}

CUcontext context_current_handle(void)
{
    const struct context *chosen = context_chosen();
    return chosen && chosen->green ? chosen->parent : context_on_top();
}

CUresult context_usable(const struct context *context)
{
    if (__builtin_expect(!context, 0))
        return own.depth && own.contexts[own.depth - 1] ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    return __builtin_expect(card_lost(context->card), 0) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* ---- making and ending ---- */

const size_t context_default_limits[16] = {[0] = 1024, [1] = 1048576, [2] = 8388608, [3] = 2, [4] = 2048, [5] = 128};

/* Exclusive mode: one process at a time has contexts on the card. The clients of one MPS server are one. */
static CUresult mode_allows(unsigned card)
{
    uint32_t mode = RELAXED(&card_at(card)->compute_mode);
    if (mode == 2)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (mode != 3 && mode != 1)
        return CUDA_SUCCESS;
    process_reap(true);
    uint32_t mine = account_at(card, cu.slot)->mps_server;
    for (int slot = 0; slot < (int)the_machine->process_high; slot++) {
        const struct machine_account *a = account_at(card, slot);
        bool together = mine && RELAXED(&a->mps_server) == mine;
        if (slot != cu.slot && !together && process_live(&the_machine->processes[slot]) && RELAXED(&a->contexts))
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return CUDA_SUCCESS;
}

CUresult context_make(CUdevice device, unsigned flags, unsigned api, bool is_primary, CUcontext *out)
{
    static _Atomic uint64_t ids;
    unsigned card = cu.devices[device].card;
    if (card_lost(card))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    CUresult rc = mode_allows(card);
    if (rc)
        return rc;
    uint64_t bytes = (card_at(card)->context_bytes + BLOCK - 1) & ~(BLOCK - 1);
    if (!memory_charge(card, cu.slot, (struct charge){bytes, 0, 0, 1, bytes}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct context *c = handle_new(K_CONTEXT);
    struct stream *s = c ? handle_new(K_STREAM) : NULL;
    if (!s) {
        memory_release(card, cu.slot, (struct charge){bytes, 0, 0, 1, bytes});
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = handle_of(K_CONTEXT, c);
    s->context = *out;
    c->legacy = s;
    c->device = device;
    c->card = card;
    c->flags = flags;
    c->api_version = api;
    c->primary = is_primary;
    c->charged = bytes;
    c->id = atomic_fetch_add(&ids, 1) + 1;
    memcpy(c->limits, context_default_limits, sizeof c->limits);
    return CUDA_SUCCESS;
}

void context_end(CUcontext handle)
{
    struct context *c = handle_get(K_CONTEXT, handle);
    if (!c)
        return;
    context_wait(c);
    unsigned card = c->card;
    heap_end_context(handle);
    modules_of_context_end(handle);
    streams_of_context_end(handle);
    uint64_t bytes = c->charged, extra = c->settings_bytes;
    handle_drop(K_CONTEXT, handle);
    memory_release(card, cu.slot, (struct charge){bytes + extra, 0, 0, 1, bytes});
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned api)
{
    if (!out || flags > 0xff)
        return CUDA_ERROR_INVALID_VALUE;
    if (own.depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = context_make(device, flags, api, false, out);
    if (rc == CUDA_SUCCESS)
        own.contexts[own.depth++] = *out;
    return rc;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
    ENTER_DEVICE(cuCtxCreate_v2, device);
    return create(out, flags, device, 3020);
}

EXPORT CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
    ENTER_DEVICE(cuCtxCreate, device);
    return create(out, flags, device, 3010);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags, CUdevice device)
{
    ENTER_DEVICE(cuCtxCreate_v3, device);
    if (count < 0 || (count > 0 && !affinity))
        return CUDA_ERROR_INVALID_VALUE;
    return count > 0 ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, device, 11040);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned int flags, CUdevice device)
{
    ENTER_DEVICE(cuCtxCreate_v4, device);
    (void)params; /* affinity and shared-GPU settings: nothing here follows them */
    return create(out, flags, device, 12050);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle)
{
    ENTER(cuCtxDestroy_v2);
    struct context *c = handle_get(K_CONTEXT, handle);
    if (!c || c->primary || c->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_end(handle);
    if (context_on_top() == handle)
        own.depth--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext handle)
{
    return cuCtxDestroy_v2(handle);
}

/* The old count of users: each attach one more, each detach one less, and with the first of them the context goes. */
EXPORT CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
    ENTER_CONTEXT(cuCtxAttach, context);
    if (!out || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    context->attached++;
    *out = context_on_top();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext handle)
{
    ENTER(cuCtxDetach);
    struct context *c = handle_get(K_CONTEXT, handle);
    if (!c || context_on_top() != handle)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (c->attached > 0) {
        c->attached--;
        return CUDA_SUCCESS;
    }
    return cuCtxDestroy_v2(handle);
}

/* ---- the calling thread's stack ---- */

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    ENTER(cuCtxPushCurrent_v2);
    if (!handle_get(K_CONTEXT, handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (own.depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own.contexts[own.depth++] = handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext handle)
{
    return cuCtxPushCurrent_v2(handle);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    ENTER(cuCtxPopCurrent_v2);
    if (own.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    own.depth--;
    if (out)
        *out = own.contexts[own.depth];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *out)
{
    return cuCtxPopCurrent_v2(out);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext handle)
{
    ENTER(cuCtxSetCurrent);
    if (handle && !handle_get(K_CONTEXT, handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle) {
        own.depth -= own.depth > 0;
        return CUDA_SUCCESS;
    }
    if (own.depth == 0)
        own.depth = 1;
    own.contexts[own.depth - 1] = handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out)
{
    ENTER(cuCtxGetCurrent);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = context_on_top();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER_CONTEXT(cuCtxGetDevice, context);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    ENTER(cuCtxGetDevice_v2);
    struct context *c = handle ? handle_get(K_CONTEXT, handle) : context_current();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = c->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER_CONTEXT(cuCtxSynchronize, context);
    CUresult forbidden = capture_forbids();
    (void)context;
    return forbidden ? forbidden : context_wait(context_chosen());
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    ENTER(cuCtxSynchronize_v2);
    struct context *c = handle ? handle_get(K_CONTEXT, handle) : context_chosen();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    return context_wait(c);
}
