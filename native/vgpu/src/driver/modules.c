/*
 * Modules and libraries (spec hami-core 7.8 and 9.1, type 1). What the image of a module says that it needs is reserved before
 * the driver is asked, so a module that cannot fit is never loaded. What it took in truth is measured afterwards, by NVML's
 * figure for the process or, where NVML does not tell, by what the card lost within the bounds of what the image can take; should the
 * limit have no room for the rest, which can only be translated or unknown code, the module is unloaded and refused.
 *
 * Drivers load code lazily, when a function is first asked for. That cannot be undone, so it is charged whatever the limit says.
 */
#include "book/image.h"
#include "driver/guest.h"
#include "driver/outlook.h"
#include "driver/pools.h"
#include "driver/slip.h"

#include <errno.h>

#define BLOCK (2ull << 20)         /* the driver takes memory from the card in blocks of this size */
#define FUNCTION_MOST (32ull << 20) /* no function's code is larger: the rest was somebody else's */
enum { LOADING_LAZY = 2 };

/* The device of the current context when it has a memory limit; -1: nothing to measure. */
static int measured_device(const struct real *real)
{
    int device = guest_serves() ? guest_current_device(real) : -1;
    return device >= 0 && memory_limit(&guest.map, device) != 0 ? device : -1;
}

struct image {
    const void *data;
    const char *path;
};

struct loading {
    int device;
    uint64_t expected, least, most;
    struct outlook before;
};

static uint64_t blocks(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static int capability(const struct real *real, int device)
{
    int major = 0, minor = 0, ordinal = guest.ordinal_of[device];
    if (real->cuDeviceGetAttribute == NULL || ordinal < 0 ||
        INSIDE(real->cuDeviceGetAttribute(&major, DEVICE_ATTRIBUTE_CAPABILITY_MAJOR, ordinal)) != CUDA_SUCCESS ||
        INSIDE(real->cuDeviceGetAttribute(&minor, DEVICE_ATTRIBUTE_CAPABILITY_MINOR, ordinal)) != CUDA_SUCCESS)
        return 0;
    return 10 * major + minor;
}

static bool loads_code_at_once(const struct real *real)
{
    int mode = LOADING_LAZY;
    return real->cuModuleGetLoadingMode == NULL ||
           (INSIDE(real->cuModuleGetLoadingMode(&mode)) == CUDA_SUCCESS && mode != LOADING_LAZY);
}

/* Of PTX the code is only bounded: that there is some takes a block. */
static void expect(const struct real *real, struct loading *loading, const struct image *image)
{
    int of_card = capability(real, loading->device);
    struct image_need need = image->path != NULL ? image_need_in_file(image->path, of_card) : image_need_in_memory(image->data, of_card);
    loading->most = UINT64_MAX;
    if (!need.known)
        return;
    uint64_t code = !loads_code_at_once(real) ? 0 : need.translated ? 1 : need.code;
    loading->least = need.variables;
    loading->expected = blocks(need.variables + code);
    loading->most = blocks(need.variables) + blocks(need.code) + BLOCK;
}

/* False when there is no room for what the image says. */
static bool begin(const struct real *real, struct loading *loading, const struct image *image)
{
    int saved = errno;
    *loading = (struct loading){.device = measured_device(real), .before = {.device = -1}};
    bool room = true;
    if (loading->device >= 0) {
        slip_settle(loading->device, false); /* what slipped past earlier is not this module's */
        expect(real, loading, image);
        room = slip_expect(loading->device, loading->expected);
        if (room)
            loading->before = outlook_in_context(loading->device);
        else
            guest_tell_refusal(loading->device, loading->expected);
    }
    errno = saved;
    return room;
}

static uint64_t within(int64_t taken, uint64_t least, uint64_t most)
{
    uint64_t bytes = taken > 0 ? (uint64_t)taken : 0;
    return bytes < least ? least : bytes < most ? bytes : most;
}

static bool claim(const struct loading *loading, uint64_t taken, uint64_t *bytes)
{
    return slip_claim(loading->device, loading->expected, taken, bytes) ||
           (pools_settle(loading->device, true) && slip_claim(loading->device, loading->expected, taken, bytes));
}

static void keep(const struct real *real, void *handle, int device, uint64_t bytes)
{
    CUcontext context = NULL;
    if (real->cuCtxGetCurrent != NULL)
        INSIDE(real->cuCtxGetCurrent(&context));
    struct record record = {.key = (uint64_t)(uintptr_t)handle, .bytes = bytes, .owner = (uint64_t)(uintptr_t)context,
                            .device = (int16_t)device, .kind = RECORD_MODULE, .charged = 1, .references = 1};
    if (bytes > 0)
        records_insert(&record);
}

static CUresult loaded(const struct real *real, CUresult rc, void **handle, const struct loading *loading, CUresult (*unload)(void *))
{
    if (loading->device < 0)
        return rc;
    int saved = errno;
    uint64_t bytes;
    if (rc != CUDA_SUCCESS) {
        slip_expected(loading->device, loading->expected);
    } else if (loading->expected > 0 || outlook_darkened(&loading->before)) {
        uint64_t taken = within(outlook_taken(&loading->before), loading->least, loading->most);
        if (claim(loading, taken, &bytes)) {
            keep(real, *handle, loading->device, bytes);
        } else {
            INSIDE(unload(*handle));
            slip_expected(loading->device, loading->expected);
            guest_tell_refusal(loading->device, taken);
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    errno = saved;
    return rc;
}

static CUresult unloaded(CUresult (*unload)(void *), void *handle)
{
    if (!guest_serves())
        return INSIDE(unload(handle));
    struct parting parting = guest_part(RECORD_MODULE, (uint64_t)(uintptr_t)handle);
    int device = parting.known ? parting.record.device : measured_device(real_cuda());
    struct outlook before = {.device = -1};
    if (device >= 0 && slip_has_residue(device))
        before = outlook_in_context(device);
    CUresult rc = INSIDE(unload(handle));
    if (rc != CUDA_SUCCESS) {
        if (parting.known)
            records_insert(&parting.record);
        return rc;
    }
    int saved = errno;
    if (parting.known)
        slip_return(parting.record.device, parting.record.bytes);
    if (before.device >= 0) { /* code that was loaded later went with it */
        int64_t more = outlook_taken(&before);
        slip_changed(device, more < 0 ? more : 0);
    }
    errno = saved;
    return rc;
}

/* After an entry that may have loaded code which was put off. */
static CUresult looked_up(CUresult rc, const struct outlook *before)
{
    int saved = errno;
    if (rc == CUDA_SUCCESS && outlook_darkened(before))
        slip_changed(before->device, (int64_t)within(outlook_taken(before), 0, FUNCTION_MOST));
    errno = saved;
    return rc;
}

/* A look-up that has been made before takes nothing: only a new answer is worth the questions. */
static struct outlook begin_look_up(const struct real *real)
{
    int saved = errno;
    struct outlook before = outlook_in_context(measured_device(real));
    errno = saved;
    return before;
}

#define LOAD(real, handle, unload, told, call) \
    if ((handle) == NULL) \
        return INSIDE(call); \
    struct image of = told; \
    struct loading loading; \
    if (!begin(real, &loading, &of)) \
        return CUDA_ERROR_OUT_OF_MEMORY; \
    return loaded(real, INSIDE(call), handle, &loading, unload)

#define IMAGE_AT(address) {.data = (address)}
#define IMAGE_IN(file) {.path = (file)}
#define IMAGE_LATER {NULL, NULL} /* what a library needs is taken in each context where something of it is first asked for */

CUresult cuModuleLoad(void **module, const char *path)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, IMAGE_IN(path), real->cuModuleLoad(module, path));
}

CUresult cuModuleLoadData(void **module, const void *image)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, IMAGE_AT(image), real->cuModuleLoadData(module, image));
}

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, IMAGE_AT(image), real->cuModuleLoadDataEx(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(void **module, const void *image)
{
    const struct real *real = real_cuda();
    LOAD(real, module, real->cuModuleUnload, IMAGE_AT(image), real->cuModuleLoadFatBinary(module, image));
}

CUresult cuModuleUnload(void *module)
{
    return unloaded(real_cuda()->cuModuleUnload, module);
}

CUresult cuLibraryLoadData(void **library, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
                           void **values, unsigned count)
{
    const struct real *real = real_cuda();
    LOAD(real, library, real->cuLibraryUnload, IMAGE_LATER,
         real->cuLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryLoadFromFile(void **library, const char *path, int *jit, void **jit_values, unsigned jit_count, int *options,
                               void **values, unsigned count)
{
    const struct real *real = real_cuda();
    LOAD(real, library, real->cuLibraryUnload, IMAGE_LATER,
         real->cuLibraryLoadFromFile(library, path, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryUnload(void *library)
{
    return unloaded(real_cuda()->cuLibraryUnload, library);
}

CUresult cuModuleGetFunction(CUfunction *function, void *module, const char *name)
{
    const struct real *real = real_cuda();
    struct outlook before = begin_look_up(real);
    return looked_up(INSIDE(real->cuModuleGetFunction(function, module, name)), &before);
}

CUresult cuLibraryGetModule(void **module, void *library)
{
    const struct real *real = real_cuda();
    struct outlook before = begin_look_up(real);
    return looked_up(INSIDE(real->cuLibraryGetModule(module, library)), &before);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, void *library, const char *name)
{
    const struct real *real = real_cuda();
    struct outlook before = begin_look_up(real);
    return looked_up(INSIDE(real->cuLibraryGetGlobal(address, bytes, library, name)), &before);
}

CUresult cuKernelGetFunction(CUfunction *function, void *kernel)
{
    const struct real *real = real_cuda();
    struct outlook before = begin_look_up(real);
    return looked_up(INSIDE(real->cuKernelGetFunction(function, kernel)), &before);
}
