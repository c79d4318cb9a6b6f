/*
 * Modules and libraries (spec hami-core 7.8 and 9.1, type 1). What one takes on the card nobody says beforehand, so it is loaded,
 * measured by NVML and then reserved; one that does not fit is unloaded and refused as an allocation is. For that moment the
 * card holds more than the limit, and no allocation of anybody is granted on it.
 *
 * Drivers load code lazily, when a function is first asked for. That cannot be undone, so it is charged whatever the limit says.
 */
#include "driver/guest.h"
#include "driver/pools.h"
#include "driver/slip.h"

#include <errno.h>

/* The device of the current context when it has a memory limit; -1: nothing to measure. */
static int measured_device(const struct real *real)
{
    int device = guest_serves() ? guest_current_device(real) : -1;
    return device >= 0 && memory_limit(&guest.map, device) != 0 ? device : -1;
}

/* Cheap, and enough to see that nothing happened. What others do meanwhile only leads to a question too many. */
static uint64_t free_on_card(const struct real *real)
{
    size_t available = 0, total;
    return INSIDE(real->cuMemGetInfo_v2(&available, &total)) == CUDA_SUCCESS ? available : 0;
}

struct loading {
    int device;
    uint64_t free_before;
};

static struct loading begin(const struct real *real)
{
    int saved = errno;
    struct loading loading = {.device = measured_device(real)};
    if (loading.device >= 0) {
        slip_settle(loading.device, false); /* what slipped past earlier is not this module's */
        loading.free_before = free_on_card(real);
    }
    errno = saved;
    return loading;
}

static bool card_lost_memory(const struct real *real, const struct loading *loading)
{
    return loading->device >= 0 && free_on_card(real) < loading->free_before;
}

static bool claim(int device, uint64_t *bytes)
{
    return slip_claim(device, bytes) || (pools_settle(device, true) && slip_claim(device, bytes));
}

static CUresult loaded(const struct real *real, CUresult rc, void **handle, const struct loading *loading, CUresult (*unload)(void *))
{
    if (rc != CUDA_SUCCESS || !card_lost_memory(real, loading))
        return rc;
    int saved = errno;
    uint64_t bytes;
    if (claim(loading->device, &bytes)) {
        CUcontext context = NULL;
        if (real->cuCtxGetCurrent != NULL)
            INSIDE(real->cuCtxGetCurrent(&context));
        struct record record = {.key = (uint64_t)(uintptr_t)*handle, .bytes = bytes, .owner = (uint64_t)(uintptr_t)context,
                                .device = (int16_t)loading->device, .kind = RECORD_MODULE, .charged = 1, .references = 1};
        if (bytes > 0)
            records_insert(&record);
    } else {
        INSIDE(unload(*handle));
        guest_tell_refusal(loading->device, 0);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    errno = saved;
    return rc;
}

static CUresult unloaded(CUresult (*unload)(void *), void *handle)
{
    if (!guest_serves())
        return INSIDE(unload(handle));
    struct parting parting = guest_part(RECORD_MODULE, (uint64_t)(uintptr_t)handle);
    CUresult rc = INSIDE(unload(handle));
    if (rc != CUDA_SUCCESS) {
        if (parting.known)
            records_insert(&parting.record);
        return rc;
    }
    int saved = errno;
    if (parting.known)
        slip_return(parting.record.device, parting.record.bytes);
    int device = parting.known ? parting.record.device : measured_device(real_cuda());
    if (device >= 0)
        slip_settle_residue(device); /* code that was loaded later went with it */
    errno = saved;
    return rc;
}

/* After an entry that may have loaded code which was put off. */
static CUresult looked_up(const struct real *real, CUresult rc, const struct loading *loading)
{
    int saved = errno;
    if (rc == CUDA_SUCCESS && card_lost_memory(real, loading))
        slip_settle(loading->device, true);
    errno = saved;
    return rc;
}

/* A look-up that has been made before takes nothing: only a new answer is worth the questions. */
static struct loading begin_look_up(const struct real *real)
{
    struct loading loading = {.device = measured_device(real)};
    if (loading.device >= 0)
        loading.free_before = free_on_card(real);
    return loading;
}

#define LOAD(real, handle, unload, call) \
    if ((handle) == NULL) \
        return INSIDE(call); \
    struct loading loading = begin(real); \
    return loaded(real, INSIDE(call), handle, &loading, unload)

CUresult cuModuleLoad(void **module, const char *path)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, real->cuModuleLoad(module, path));
}

CUresult cuModuleLoadData(void **module, const void *image)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, real->cuModuleLoadData(module, image));
}

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, real->cuModuleLoadDataEx(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(void **module, const void *image)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, real->cuModuleLoadFatBinary(module, image));
}

CUresult cuModuleUnload(void *module)
{
    return unloaded(real_cuda()->cuModuleUnload, module);
}

CUresult cuLibraryLoadData(void **library, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
                           void **values, unsigned count)
{
    const struct real *real = real_cuda();
    LOAD(real, library, real->cuLibraryUnload,
         real->cuLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryLoadFromFile(void **library, const char *path, int *jit, void **jit_values, unsigned jit_count, int *options,
                               void **values, unsigned count)
{
    const struct real *real = real_cuda();
    LOAD(real, library, real->cuLibraryUnload,
         real->cuLibraryLoadFromFile(library, path, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryUnload(void *library)
{
    return unloaded(real_cuda()->cuLibraryUnload, library);
}

CUresult cuModuleGetFunction(CUfunction *function, void *module, const char *name)
{
    const struct real *real = real_cuda();
    struct loading loading = begin_look_up(real);
    return looked_up(real, INSIDE(real->cuModuleGetFunction(function, module, name)), &loading);
}

CUresult cuLibraryGetModule(void **module, void *library)
{
    const struct real *real = real_cuda();
    struct loading loading = begin_look_up(real);
    return looked_up(real, INSIDE(real->cuLibraryGetModule(module, library)), &loading);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, void *library, const char *name)
{
    const struct real *real = real_cuda();
    struct loading loading = begin_look_up(real);
    return looked_up(real, INSIDE(real->cuLibraryGetGlobal(address, bytes, library, name)), &loading);
}

CUresult cuKernelGetFunction(CUfunction *function, void *kernel)
{
    const struct real *real = real_cuda();
    struct loading loading = begin_look_up(real);
    return looked_up(real, INSIDE(real->cuKernelGetFunction(function, kernel)), &loading);
}
