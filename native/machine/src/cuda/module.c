/* Modules and libraries: kernels and global variables by name. */
#define _GNU_SOURCE
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- modules ---- */

static void give_memory(struct module *m)
{
    struct context *c = m->context ? context_of(m->context) : NULL;
    for (size_t i = 0; c && i < m->kernel_count; i++)
        code_unload(c, &m->kernels[i]);
    for (size_t i = 0; i < m->global_count; i++)
        if (m->globals[i].address)
            heap_free(m->globals[i].address, M_DEVICE);
}

static CUresult load(enum kind kind, void **out, const void *image, CUcontext context)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m = handle_new(kind);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->context = context;
    pthread_mutex_init(&m->mutex, NULL);
    CUresult rc = image_read(m, image);
    void *handle = handle_of(kind, m);
    struct context *c = context ? context_of(context) : NULL;
    for (size_t i = 0; rc == CUDA_SUCCESS && c && i < m->global_count; i++) {
        struct block *b;
        rc = heap_alloc(c->card, context, m->globals[i].bytes, M_DEVICE, &b);
        if (rc == CUDA_SUCCESS)
            m->globals[i].address = b->address;
    }
    for (size_t i = 0; rc == CUDA_SUCCESS && c && i < m->kernel_count && code_is_eager(); i++)
        if (!code_load(c, &m->kernels[i]))
            rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc) {
        give_memory(m);
        image_forget(m);
        handle_drop(kind, handle);
        return rc;
    }
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult unload(enum kind kind, void *handle)
{
    struct module *m = handle_get(kind, handle);
    if (!m || !handle_drop(kind, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < m->kernel_count; i++)
        if (m->kernels[i].function)
            handle_drop(K_FUNCTION, m->kernels[i].function);
    give_memory(m);
    image_forget(m);
    return CUDA_SUCCESS;
}

static void unload_if_of(void *object, void *arg)
{
    struct module *m = object;
    if (m->context == arg)
        unload(K_MODULE, handle_of(K_MODULE, m));
}

void modules_of_context_end(CUcontext context)
{
    handle_each(K_MODULE, unload_if_of, context);
}

/* The same handle each time, as the driver gives. */
static CUresult function_of(struct module *m, void *handle, const char *name, CUfunction *out)
{
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&m->mutex);
    struct kernel_text *k = image_kernel(m, name);
    struct context *c = m->context ? context_of(m->context) : NULL;
    if (k && !k->function && (!c || code_load(c, k))) {
        struct function *f = handle_new(K_FUNCTION);
        if (f) {
            f->module = handle;
            memcpy(f->name, k->name, sizeof f->name);
            f->ns = k->ns;
            f->special = k->special;
            f->regs = k->regs;
            f->attributes[1] = k->smem;
            k->function = handle_of(K_FUNCTION, f);
        }
    }
    CUresult rc = !k ? CUDA_ERROR_NOT_FOUND : k->function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (rc == CUDA_SUCCESS)
        *out = k->function;
    pthread_mutex_unlock(&m->mutex);
    return rc;
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    ENTER_CONTEXT(cuModuleLoadData, context);
    return load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, int *options, void **values)
{
    ENTER_CONTEXT(cuModuleLoadDataEx, context);
    if (count > 0 && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    ENTER_CONTEXT(cuModuleLoadFatBinary, context);
    return load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    ENTER_CONTEXT(cuModuleLoad, context);
    char *text;
    CUresult rc = image_from_file(path, &text);
    if (rc == CUDA_SUCCESS) {
        rc = load(K_MODULE, out, text, context_current_handle());
        free(text);
    }
    return rc;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    ENTER_CONTEXT(cuModuleUnload, context);
    return unload(K_MODULE, module);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    ENTER_CONTEXT(cuModuleGetFunction, context);
    struct module *m = handle_get(K_MODULE, module);
    return m ? function_of(m, module, name, out) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult global_of(struct module *m, const char *name, CUdeviceptr *address, size_t *bytes)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < m->global_count; i++) {
        if (strcmp(m->globals[i].name, name) != 0)
            continue;
        if (address)
            *address = m->globals[i].address;
        if (bytes)
            *bytes = m->globals[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    ENTER_CONTEXT(cuModuleGetGlobal_v2, context);
    struct module *m = handle_get(K_MODULE, module);
    return m ? global_of(m, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuModuleGetTexRef(CUtexref *out, CUmodule module, const char *name)
{
    ENTER_CONTEXT(cuModuleGetTexRef, context);
    (void)name;
    return !out ? CUDA_ERROR_INVALID_VALUE : handle_get(K_MODULE, module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuModuleGetSurfRef(CUsurfref *out, CUmodule module, const char *name)
{
    ENTER_CONTEXT(cuModuleGetSurfRef, context);
    (void)name;
    return !out ? CUDA_ERROR_INVALID_VALUE : handle_get(K_MODULE, module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = code_is_eager() ? 1 : 2;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    ENTER(cuModuleGetFunctionCount);
    struct module *m = handle_get(K_MODULE, module);
    if (!count || !m)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)m->kernel_count;
    return CUDA_SUCCESS;
}

/* ---- libraries: modules without a context; a kernel of one is a function everywhere ---- */

EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
                                  void **values, unsigned count)
{
    ENTER(cuLibraryLoadData);
    if ((jit_count && (!jit || !jit_values)) || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    return load(K_LIBRARY, out, code, NULL);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values, unsigned jit_count,
                                      int *options, void **values, unsigned count)
{
    ENTER(cuLibraryLoadFromFile);
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    char *text;
    CUresult rc = image_from_file(path, &text);
    if (rc == CUDA_SUCCESS) {
        rc = load(K_LIBRARY, out, text, NULL);
        free(text);
    }
    return rc;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER(cuLibraryUnload);
    return unload(K_LIBRARY, library);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    ENTER(cuLibraryGetKernel);
    struct module *m = handle_get(K_LIBRARY, library);
    return m ? function_of(m, library, name, out) : CUDA_ERROR_INVALID_HANDLE;
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

EXPORT CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    ENTER_CONTEXT(cuLibraryGetModule, context);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    return handle_get(K_LIBRARY, library) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
}

/* Memory for a library's variables is taken at first use, from the current context. */
EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    ENTER_CONTEXT(cuLibraryGetGlobal, context);
    struct module *m = handle_get(K_LIBRARY, library);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&m->mutex);
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < m->global_count && rc == CUDA_SUCCESS; i++) {
        struct block *b;
        if (name && !m->globals[i].address && strcmp(m->globals[i].name, name) == 0) {
            rc = heap_alloc(context->card, context_current_handle(), m->globals[i].bytes, M_DEVICE, &b);
            if (rc == CUDA_SUCCESS)
                m->globals[i].address = b->address;
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return rc ? rc : global_of(m, name, address, bytes);
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
