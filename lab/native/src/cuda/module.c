/* Modules: kernels and global variables by name. */
#define _GNU_SOURCE
#include "image.h"

#include <stdlib.h>
#include <string.h>

static void give_memory(struct module *m)
{
    struct context *c = m->context ? context_of(m->context) : NULL;
    for (size_t i = 0; c && i < m->kernel_count; i++)
        code_unload(c, &m->kernels[i]);
    for (size_t i = 0; i < m->global_count; i++)
        if (m->globals[i].address)
            heap_free(m->globals[i].address, m->globals[i].managed ? M_MANAGED : M_DEVICE);
}

CUresult global_place(struct global_text *g, unsigned card, CUcontext context)
{
    struct block *b;
    CUresult rc = heap_alloc(card, context, g->bytes, g->managed ? M_MANAGED : M_DEVICE, &b);
    if (rc == CUDA_SUCCESS) {
        g->address = b->address;
        if (g->initial && b->data)
            memcpy(b->data, g->initial, g->bytes);
    }
    return rc;
}

CUresult module_load(enum kind kind, void **out, const void *image, CUcontext context)
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
    for (size_t i = 0; rc == CUDA_SUCCESS && c && i < m->global_count; i++)
        rc = global_place(&m->globals[i], c->card, context);
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

CUresult module_unload(enum kind kind, void *handle)
{
    struct module *m = handle_get(kind, handle);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    struct module gone = *m; /* once it is dropped, the object is that of whoever loads next */
    if (!handle_drop(kind, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < gone.kernel_count; i++)
        if (gone.kernels[i].function)
            handle_drop(K_FUNCTION, gone.kernels[i].function);
    give_memory(&gone);
    image_forget(&gone);
    return CUDA_SUCCESS;
}

static void unload_if_of(void *object, void *arg)
{
    struct module *m = object;
    if (m->context == arg)
        module_unload(K_MODULE, handle_of(K_MODULE, m));
}

void modules_of_context_end(CUcontext context)
{
    handle_each(K_MODULE, unload_if_of, context);
}

/* The same handle each time, as the driver gives. */
CUresult module_function(struct module *m, void *handle, const char *name, CUfunction *out)
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
            f->name = k->name;
            f->parameters = k->parameters;
            f->parameter_count = k->parameter_count;
            f->ns = k->ns;
            f->time_of = k->time_of;
            f->regs = k->regs;
            f->attributes[1] = k->smem;
            f->attributes[2] = k->constants;
            f->attributes[3] = k->local;
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
    return module_load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, int *options, void **values)
{
    ENTER_CONTEXT(cuModuleLoadDataEx, context);
    if (count > 0 && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return module_load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    ENTER_CONTEXT(cuModuleLoadFatBinary, context);
    return module_load(K_MODULE, out, image, context_current_handle());
}

EXPORT CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    ENTER_CONTEXT(cuModuleLoad, context);
    char *text;
    CUresult rc = image_from_file(path, &text, NULL);
    if (rc == CUDA_SUCCESS) {
        rc = module_load(K_MODULE, out, text, context_current_handle());
        free(text);
    }
    return rc;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    ENTER_CONTEXT(cuModuleUnload, context);
    return module_unload(K_MODULE, module);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    ENTER_CONTEXT(cuModuleGetFunction, context);
    struct module *m = handle_get(K_MODULE, module);
    return m ? module_function(m, module, name, out) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult module_global(struct module *m, const char *name, CUdeviceptr *address, size_t *bytes)
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
    return m ? module_global(m, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
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

/* Handles of the module's first kernels. */
CUresult module_functions(struct module *m, void *handle, CUfunction *out, unsigned int most)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < most && i < m->kernel_count; i++)
        rc = module_function(m, handle, m->kernels[i].name, &out[i]);
    return rc;
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned int most, CUmodule module)
{
    ENTER_CONTEXT(cuModuleEnumerateFunctions, context);
    struct module *m = handle_get(K_MODULE, module);
    return m ? module_functions(m, module, out, most) : CUDA_ERROR_INVALID_HANDLE;
}
