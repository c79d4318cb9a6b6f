/* Entries that load modules and libraries, and that look things up in them; what that takes is in services/module_memory.h. */
#include "services/late_loading.h"
#include "services/module_memory.h"

#define LOAD(real, handle, unload, told, call) \
    if ((handle) == NULL) \
        return INSIDE(call); \
    struct module_image of = told; \
    struct module_loading loading; \
    if (!module_load_begin(real, &loading, &of)) \
        return CUDA_ERROR_OUT_OF_MEMORY; \
    return module_loaded(INSIDE(call), handle, &loading, unload)

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
    return module_unload(real_cuda()->cuModuleUnload, module);
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
    return module_unload(real_cuda()->cuLibraryUnload, library);
}

#define LOOK_UP(kind, of, name, call) \
    const struct real *real = real_cuda(); \
    struct late_loading loading = late_loading_begin(real, kind, of, name); \
    return late_loading_end(INSIDE(real->call), &loading)

CUresult cuModuleGetFunction(CUfunction *function, void *module, const char *name)
{
    LOOK_UP(LATE_CODE, module, name, cuModuleGetFunction(function, module, name));
}

CUresult cuLibraryGetModule(void **module, void *library)
{
    LOOK_UP(LATE_VARIABLES, library, NULL, cuLibraryGetModule(module, library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, void *library, const char *name)
{
    LOOK_UP(LATE_VARIABLES, library, name, cuLibraryGetGlobal(address, bytes, library, name));
}

CUresult cuKernelGetFunction(CUfunction *function, void *kernel)
{
    LOOK_UP(LATE_CODE, kernel, NULL, cuKernelGetFunction(function, kernel));
}
