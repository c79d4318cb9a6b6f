/* Green contexts: some of a card's processors, with streams of their own (green_time.c says how long kernels take on them). Memory,
 * code and settings are those of the primary context, which each of them retains; of its own it takes nothing here, which on a card
 * nobody has measured. */
#define _GNU_SOURCE
#include "green.h"
#include "graph.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

static CUresult make(struct green **out, const struct part *part)
{
    static _Atomic uint64_t ids;
    CUcontext parent;
    CUresult rc = cuDevicePrimaryCtxRetain(&parent, part->device);
    if (rc)
        return rc;
    struct green *g = handle_new(K_GREEN);
    struct context *c = handle_new(K_CONTEXT);
    struct stream *s = handle_new(K_STREAM);
    const struct context *of = context_of(parent);
    if (!g || !c || !s || !of) {
        cuDevicePrimaryCtxRelease_v2(part->device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    g->part = *part;
    g->id = atomic_fetch_add(&ids, 1) + 1;
    g->context = handle_of(K_CONTEXT, c);
    c->device = of->device;
    c->card = of->card;
    c->api_version = of->api_version;
    c->id = of->id;
    c->parent = parent;
    c->green = handle_of(K_GREEN, g);
    s->context = g->context;
    s->green = true;
    c->legacy = s;
    *out = g;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *out, void *resources, CUdevice device, unsigned int flags)
{
    ENTER_DEVICE(cuGreenCtxCreate, device);
    const struct resources *r = handle_get(K_RESOURCES, resources);
    if (!out || !r || r->part.device != device || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct green *g;
    CUresult rc = make(&g, &r->part);
    if (rc == CUDA_SUCCESS)
        *out = handle_of(K_GREEN, g);
    return rc;
}

static struct green *green_of(CUgreenCtx green)
{
    return handle_get(K_GREEN, green);
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    ENTER(cuGreenCtxDestroy);
    struct green *g = green_of(green);
    struct context *c = g ? context_of(g->context) : NULL;
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUdevice device = g->part.device;
    context_wait(c);
    handle_drop(K_STREAM, handle_of(K_STREAM, c->legacy));
    streams_of_green_end(g->context);
    handle_drop(K_CONTEXT, g->context);
    handle_drop(K_GREEN, green);
    cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    ENTER(cuCtxFromGreenCtx);
    const struct green *g = green_of(green);
    if (!g)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = g->context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
    ENTER(cuGreenCtxGetId);
    const struct context *chosen = green ? NULL : context_chosen();
    const struct green *g = green_of(green ? green : chosen ? chosen->green : NULL);
    if (!g)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = g->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned int flags, int priority)
{
    ENTER(cuGreenCtxStreamCreate);
    const struct green *g = green_of(green);
    if (!g)
        return CUDA_ERROR_INVALID_CONTEXT;
    return out && flags == CU_STREAM_NON_BLOCKING ? stream_make(out, g->context, flags, priority) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    ENTER(cuGreenCtxRecordEvent);
    const struct green *g = green_of(green);
    return g ? event_record_context(g->context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    ENTER(cuGreenCtxWaitEvent);
    const struct green *g = green_of(green);
    return g ? event_wait_context(g->context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- what one has ---- */

static CUresult describe(const struct context *c, CUdevResource *out, int type)
{
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct green *g = c->green ? green_of(c->green) : NULL;
    struct part all = part_of_device(c->device);
    return part_describe(g ? &g->part : &all, type, out);
}

EXPORT CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *out, int type)
{
    ENTER(cuCtxGetDevResource);
    return describe(context_of(handle), out, type);
}

EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *out, int type)
{
    ENTER(cuGreenCtxGetDevResource);
    const struct green *g = green_of(green);
    return describe(g ? context_of(g->context) : NULL, out, type);
}

EXPORT CUresult cuStreamGetDevResource(CUstream stream, CUdevResource *out, int type)
{
    ENTER_CONTEXT(cuStreamGetDevResource, context);
    const struct stream *s = stream_of(stream, context);
    if (!s)
        return stream_missing(stream);
    return type == DEV_RESOURCE_SM ? describe(context_of(s->context), out, type) : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}
