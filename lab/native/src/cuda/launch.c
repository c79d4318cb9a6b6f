/* Launches: a kernel is its time on the card. */
#define _GNU_SOURCE
#include "cuda.h"
#include "objects.h"

#include <string.h>

/* The first parameter as a 64-bit number, for kernels that take their time from it. */
static uint64_t first_parameter(void **params, void **extra)
{
    uint64_t value = 0;
    if (params && params[0]) {
        memcpy(&value, params[0], sizeof value);
    } else if (extra) { /* pairs of key and value, ended by 0: 1 is the buffer */
        for (int i = 0; i < 8 && extra[i]; i += 2)
            if (extra[i] == (void *)1 && extra[i + 1])
                memcpy(&value, extra[i + 1], sizeof value);
    }
    return value;
}

#define LONGEST_KERNEL_NS (1ull << 50)

uint64_t function_time(const struct function *f, uint64_t blocks, void **params, void **extra, unsigned card)
{
    if (__builtin_expect(f->time_of == T_OWN, 1))
        return f->ns;
    const struct machine_card *c = card_at(card);
    uint64_t value = first_parameter(params, extra);
    if (f->time_of == T_FIRST_NS)
        return value;
    if (f->time_of == T_FIRST_CYCLES) /* a number below zero is over at once */
        return (int64_t)value <= 0 || !c->clock_sm_max_mhz ? 0
               : value < LONGEST_KERNEL_NS                 ? value * 1000 / c->clock_sm_max_mhz : LONGEST_KERNEL_NS;
    uint64_t waves = c->sm_count ? (blocks + c->sm_count - 1) / c->sm_count : blocks;
    return waves && value > UINT64_MAX / 2 / waves ? UINT64_MAX / 2 : value * waves;
}

CUresult launch(const struct function *f, struct stream *stream, unsigned card, uint64_t blocks, void **params, void **extra)
{
    struct machine_account *a = account_at(card, cu.slot);
    uint64_t ns = function_time(f, blocks, params, extra, card);
    if (__builtin_expect(stream->green, 0))
        ns = green_time(stream, ns, blocks);
    ADD(&a->launches, 1);
    stream_submit(stream, card, ns < LONGEST_KERNEL_NS ? ns : LONGEST_KERNEL_NS);
    return CUDA_SUCCESS;
}

static bool shape_ok(const CUDA_KERNEL_NODE_PARAMS *p, unsigned card)
{
    uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
    return p->gridDimX && p->gridDimY && p->gridDimZ && threads > 0 && threads <= 1024 && p->blockDimX <= 1024 &&
           p->blockDimY <= 1024 && p->blockDimZ <= 64 && p->gridDimX <= 0x7fffffff && p->gridDimY <= 65535 &&
           p->gridDimZ <= 65535 && p->sharedMemBytes <= card_at(card)->shared_per_sm;
}

static CUresult launch_in(struct context *context, const CUDA_KERNEL_NODE_PARAMS *p, CUstream stream)
{
    struct function *f = handle_get(K_FUNCTION, p->func);
    struct stream *s = stream_of(stream, context);
    if (__builtin_expect(!f || !s, 0))
        return f ? stream_missing(stream) : CUDA_ERROR_INVALID_HANDLE;
    if (__builtin_expect(!shape_ok(p, context->card) || (p->kernelParams && p->extra), 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_expect(atomic_load_explicit(&s->capture, memory_order_relaxed) != 0, 0))
        return capture_kernel(s, p);
    unsigned card = context->card;
    if (__builtin_expect(s->context != context->legacy->context, 0)) {
        struct context *of = context_of(s->context);
        if (!of)
            return CUDA_ERROR_INVALID_HANDLE;
        card = of->card;
    }
    return launch(f, s, card, (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ, p->kernelParams, p->extra);
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, CUstream stream, void **params, void **extra)
{
    ENTER_CONTEXT(cuLaunchKernel, context);
    CUDA_KERNEL_NODE_PARAMS p = {f, gx, gy, gz, bx, by, bz, shared, params, extra};
    return launch_in(context, &p, stream);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    ENTER_CONTEXT(cuLaunchKernelEx, context);
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS p = {f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                                 config->blockDimZ, config->sharedMemBytes, params, extra};
    return launch_in(context, &p, config->hStream);
}

/* All blocks must be on the card at once. */
static CUresult launch_cooperative(struct context *context, const CUDA_KERNEL_NODE_PARAMS *p, CUstream stream)
{
    const struct machine_card *c = card_at(context->card);
    uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
    uint64_t per_sm = threads ? c->threads_per_sm / threads : 0;
    uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
    if (handle_get(K_FUNCTION, p->func) && shape_ok(p, context->card) &&
        blocks > (per_sm < 32 ? per_sm : 32) * cu.devices[context->device].sm_count)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch_in(context, p, stream);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, CUstream stream, void **params)
{
    ENTER_CONTEXT(cuLaunchCooperativeKernel, context);
    CUDA_KERNEL_NODE_PARAMS p = {f, gx, gy, gz, bx, by, bz, shared, params, NULL};
    return launch_cooperative(context, &p, stream);
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
    ENTER_CONTEXT(cuLaunchCooperativeKernelMultiDevice, context);
    if (!list || count == 0 || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        struct stream *s = handle_get(K_STREAM, list[i].hStream);
        struct context *of = s ? context_of(s->context) : NULL;
        if (!of)
            return CUDA_ERROR_INVALID_HANDLE;
        CUDA_KERNEL_NODE_PARAMS p;
        memcpy(&p, &list[i], offsetof(CUDA_KERNEL_NODE_PARAMS, kernelParams));
        p.kernelParams = list[i].kernelParams;
        p.extra = NULL;
        CUresult rc = launch_cooperative(of, &p, list[i].hStream);
        if (rc)
            return rc;
    }
    return CUDA_SUCCESS;
}

/* ---- the calls before 4.0: shape and parameters are kept with the function ---- */

EXPORT CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    ENTER(cuFuncSetBlockShape);
    struct function *f = handle_get(K_FUNCTION, function);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    if (x <= 0 || y <= 0 || z <= 0 || (int64_t)x * y * z > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    f->attributes[13] = x, f->attributes[14] = y, f->attributes[15] = z;
    return CUDA_SUCCESS;
}

static CUresult launch_grid(CUfunction function, int width, int height, CUstream stream)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    struct function *f = handle_get(K_FUNCTION, function);
    if (usable || !f)
        return usable ? usable : CUDA_ERROR_INVALID_HANDLE;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned x = f->attributes[13] ? (unsigned)f->attributes[13] : 1, y = f->attributes[14] ? (unsigned)f->attributes[14] : 1,
             z = f->attributes[15] ? (unsigned)f->attributes[15] : 1;
    CUDA_KERNEL_NODE_PARAMS p = {function, (unsigned)width, (unsigned)height, 1, x, y, z, 0, NULL, NULL};
    return launch_in(context, &p, stream);
}

EXPORT CUresult cuLaunch(CUfunction function)
{
    ENTER(cuLaunch);
    return launch_grid(function, 1, 1, NULL);
}

EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    ENTER(cuLaunchGrid);
    return launch_grid(function, width, height, NULL);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    ENTER(cuLaunchGridAsync);
    return launch_grid(function, width, height, stream);
}
