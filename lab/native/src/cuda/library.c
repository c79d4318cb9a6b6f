/* Libraries: modules without a context; a kernel of one is a function everywhere. */
#define _GNU_SOURCE
#include "image.h"

#include <stdlib.h>
#include <string.h>

EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
                                  void **values, unsigned count)
{
    ENTER(cuLibraryLoadData);
    if ((jit_count && (!jit || !jit_values)) || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    return module_load(K_LIBRARY, out, code, NULL);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values, unsigned jit_count,
                                      int *options, void **values, unsigned count)
{
    ENTER(cuLibraryLoadFromFile);
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    char *text;
    CUresult rc = image_from_file(path, &text, NULL);
    if (rc == CUDA_SUCCESS) {
        rc = module_load(K_LIBRARY, out, text, NULL);
        free(text);
    }
    return rc;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER(cuLibraryUnload);
    return module_unload(K_LIBRARY, library);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    ENTER(cuLibraryGetKernel);
    struct module *m = handle_get(K_LIBRARY, library);
    return m ? module_function(m, library, name, out) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    ENTER(cuLibraryGetKernelCount);
    struct module *m = handle_get(K_LIBRARY, library);
    if (!count || !m)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)m->kernel_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int most, CUlibrary library)
{
    ENTER(cuLibraryEnumerateKernels);
    struct module *m = handle_get(K_LIBRARY, library);
    return m ? module_functions(m, library, out, most) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryGetUnifiedFunction(void **out, CUlibrary library, const char *name)
{
    ENTER(cuLibraryGetUnifiedFunction);
    return !handle_get(K_LIBRARY, library) ? CUDA_ERROR_INVALID_HANDLE : !out || !name ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    ENTER_CONTEXT(cuLibraryGetModule, context);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    return handle_get(K_LIBRARY, library) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
}

/* Memory for a library's variables is taken at first use, from the current context. */
static CUresult placed_global(struct context *context, struct module *m, const char *name, CUdeviceptr *address, size_t *bytes)
{
    pthread_mutex_lock(&m->mutex);
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < m->global_count && rc == CUDA_SUCCESS; i++)
        if (name && !m->globals[i].address && strcmp(m->globals[i].name, name) == 0)
            rc = global_place(&m->globals[i], context->card, context_current_handle());
    pthread_mutex_unlock(&m->mutex);
    return rc ? rc : module_global(m, name, address, bytes);
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    ENTER_CONTEXT(cuLibraryGetGlobal, context);
    struct module *m = handle_get(K_LIBRARY, library);
    return m ? placed_global(context, m, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    ENTER_CONTEXT(cuLibraryGetManaged, context);
    struct module *m = handle_get(K_LIBRARY, library);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; name && i < m->global_count; i++)
        if (m->globals[i].managed && strcmp(m->globals[i].name, name) == 0)
            return placed_global(context, m, name, address, bytes);
    return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
    ENTER_CONTEXT(cuKernelGetFunction, context);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!handle_get(K_FUNCTION, kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
    ENTER(cuKernelGetLibrary);
    struct function *f = handle_get(K_FUNCTION, kernel);
    if (!out || !f)
        return f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *out = f->module;
    return CUDA_SUCCESS;
}
