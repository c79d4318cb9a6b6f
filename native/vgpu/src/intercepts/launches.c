/* Every entry that launches a kernel. */
#include "services/launching.h"

/* The hook around one call: admit, launch, settle. */
#define LAUNCH(shape, stream, per_thread, call) \
    struct launch launch; \
    if (!launch_begin(&launch, &(shape), stream, per_thread)) \
        return INSIDE(call); \
    CUresult rc = INSIDE(call); \
    return launch_done(&launch, rc)

static inline struct shape kernel(CUfunction function, uint64_t x, uint64_t y, uint64_t z, uint32_t threads, uint32_t shared)
{
    return (struct shape){.function = function, .blocks = x * y * z, .threads = threads, .shared = shared, .kind = SHAPE_KERNEL};
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, grid_x, grid_y, grid_z, block_x * block_y * block_z, shared);
    LAUNCH(shape, stream, false,
           real->cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra));
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                             void **extra)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, grid_x, grid_y, grid_z, block_x * block_y * block_z, shared);
    LAUNCH(shape, stream, true,
           real->cuLaunchKernel_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters,
                                     extra));
}

static struct shape configured(const struct launch_config *config, CUfunction function)
{
    return kernel(function, config->grid_x, config->grid_y, config->grid_z, config->block_x * config->block_y * config->block_z,
                  config->shared);
}

CUresult cuLaunchKernelEx(const struct launch_config *config, CUfunction function, void **parameters, void **extra)
{
    const struct real *real = real_cuda();
    if (config == NULL)
        return INSIDE(real->cuLaunchKernelEx(config, function, parameters, extra));
    struct shape shape = configured(config, function);
    LAUNCH(shape, config->stream, false, real->cuLaunchKernelEx(config, function, parameters, extra));
}

CUresult cuLaunchKernelEx_ptsz(const struct launch_config *config, CUfunction function, void **parameters, void **extra)
{
    const struct real *real = real_cuda();
    if (config == NULL)
        return INSIDE(real->cuLaunchKernelEx_ptsz(config, function, parameters, extra));
    struct shape shape = configured(config, function);
    LAUNCH(shape, config->stream, true, real->cuLaunchKernelEx_ptsz(config, function, parameters, extra));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                   unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, grid_x, grid_y, grid_z, block_x * block_y * block_z, shared);
    LAUNCH(shape, stream, false,
           real->cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                                           parameters));
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                                        void **parameters)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, grid_x, grid_y, grid_z, block_x * block_y * block_z, shared);
    LAUNCH(shape, stream, true,
           real->cuLaunchCooperativeKernel_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                                                parameters));
}

/*
 * One kernel on each of several devices. The parts last about equally long, so the first one is measured and each is
 * charged on the device that is current: the entry does not tell which stream belongs to which device.
 */
CUresult cuLaunchCooperativeKernelMultiDevice(struct launch_params *list, unsigned count, unsigned flags)
{
    const struct real *real = real_cuda();
    if (list == NULL || count == 0)
        return INSIDE(real->cuLaunchCooperativeKernelMultiDevice(list, count, flags));
    struct shape shape = kernel(list->function, list->grid_x, list->grid_y, list->grid_z,
                                list->block_x * list->block_y * list->block_z, list->shared);
    LAUNCH(shape, list->stream, false, real->cuLaunchCooperativeKernelMultiDevice(list, count, flags));
}

/* The launches of CUDA 3 and before, whose block shape was set on the function. */
CUresult cuLaunch(CUfunction function)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, 1, 1, 1, 0, 0);
    LAUNCH(shape, NULL, false, real->cuLaunch(function));
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, (unsigned)width, (unsigned)height, 1, 0, 0);
    LAUNCH(shape, NULL, false, real->cuLaunchGrid(function, width, height));
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    const struct real *real = real_cuda();
    struct shape shape = kernel(function, (unsigned)width, (unsigned)height, 1, 0, 0);
    LAUNCH(shape, stream, false, real->cuLaunchGridAsync(function, width, height, stream));
}
