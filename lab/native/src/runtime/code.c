/* The code that programs bring: nvcc has each object register its fat binary and the kernels and variables in it as the object is loaded
 * (crt/host_runtime.h names the calls). Nothing is loaded before a kernel or variable is asked for. */
#define _GNU_SOURCE
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>

struct binary {
    const void *image; /* the fat binary's wrapper; NULL: unregistered, and kept for those who point here */
    CUlibrary library;
};
struct symbol { /* of the host: a kernel's stub or a variable's shadow */
    const void *host;
    const char *name;
    struct binary *binary;
    CUkernel kernel;
    bool variable, managed;
};
static struct { pthread_mutex_t mutex; struct symbol *slots; size_t room, used; } symbols = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct symbol *slot_of(struct symbol *slots, size_t room, const void *host)
{
    size_t at = ((uintptr_t)host >> 3) * 0x9e3779b97f4a7c15u >> 20 & (room - 1);
    while (slots[at].host && slots[at].host != host)
        at = (at + 1) & (room - 1);
    return &slots[at];
}

static bool grow(void)
{
    size_t room = symbols.room ? symbols.room * 2 : 1024;
    struct symbol *slots = calloc(room, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < symbols.room; i++)
        if (symbols.slots[i].host)
            *slot_of(slots, room, symbols.slots[i].host) = symbols.slots[i];
    free(symbols.slots);
    symbols.slots = slots;
    symbols.room = room;
    return true;
}

static void enter(struct symbol new)
{
    pthread_mutex_lock(&symbols.mutex);
    if (new.host && new.binary && (symbols.used * 2 < symbols.room || grow())) {
        struct symbol *slot = slot_of(symbols.slots, symbols.room, new.host);
        symbols.used += !slot->host;
        *slot = new;
    }
    pthread_mutex_unlock(&symbols.mutex);
}

EXPORT void **__cudaRegisterFatBinary(void *image)
{
    struct binary *binary = calloc(1, sizeof *binary);
    if (binary)
        binary->image = image;
    return (void **)binary;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **binary)
{
    (void)binary;
}

EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    struct binary *binary = (struct binary *)handle;
    if (!binary)
        return;
    pthread_mutex_lock(&symbols.mutex);
    CUlibrary library = binary->library;
    *binary = (struct binary){0};
    pthread_mutex_unlock(&symbols.mutex);
    if (library)
        THE(cuLibraryUnload)(library);
}

EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int threads, void *tid, void *bid,
                                   dim3 *block, dim3 *grid, int *warp)
{
    (void)device, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    enter((struct symbol){.host = host, .name = name, .binary = (struct binary *)binary});
}

EXPORT void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int external, size_t bytes, int constant, int global)
{
    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    enter((struct symbol){.host = host, .name = name, .binary = (struct binary *)binary, .variable = true});
}

/* Of managed memory the host has a pointer, which __cudaInitModule is to fill before it is followed. */
EXPORT void __cudaRegisterManagedVar(void **binary, void **host, char *device, const char *name, int external, size_t bytes, int constant,
                                     int global)
{
    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    enter((struct symbol){.host = host, .name = name, .binary = (struct binary *)binary, .variable = true, .managed = true});
}

EXPORT void __cudaRegisterHostVar(void **binary, const char *name, char *host, size_t bytes)
{
    (void)binary, (void)name, (void)host, (void)bytes;
}

EXPORT void __cudaRegisterUnifiedTable(void **binary, void *table)
{
    (void)binary, (void)table;
}

/* With the mutex: the symbol, its library loaded. */
static int loaded(const void *host, bool variable, struct symbol **out)
{
    struct symbol *symbol = symbols.room ? slot_of(symbols.slots, symbols.room, host) : NULL;
    if (!symbol || !symbol->host || !symbol->binary->image || symbol->variable != variable)
        return variable ? cudaErrorInvalidSymbol : cudaErrorInvalidDeviceFunction;
    *out = symbol;
    struct binary *binary = symbol->binary;
    return binary->library ? 0 : THE(cuLibraryLoadData)(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
}

EXPORT char __cudaInitModule(void **binary)
{
    struct symbol *symbol;
    size_t bytes;
    int rc = in_context();
    pthread_mutex_lock(&symbols.mutex);
    for (size_t i = 0; i < symbols.room && rc == 0; i++) {
        struct symbol *at = &symbols.slots[i];
        if (!at->managed || at->binary != (struct binary *)binary)
            continue;
        rc = loaded(at->host, true, &symbol);
        rc = rc ? rc : THE(cuLibraryGetManaged)((CUdeviceptr *)at->host, &bytes, at->binary->library, at->name);
    }
    pthread_mutex_unlock(&symbols.mutex);
    return settle(rc) == 0;
}

/* A kernel or function of a library or module stands for itself. */
static bool is_handle(const void *function)
{
    CUlibrary library;
    CUmodule module;
    return THE(cuKernelGetLibrary)(&library, (CUkernel)function) == 0 || THE(cuFuncGetModule)(&module, (CUfunction)function) == 0;
}

int kernel_of(const void *function, CUkernel *out)
{
    struct symbol *symbol;
    int rc = function ? in_context() : cudaErrorInvalidDeviceFunction;
    if (rc)
        return rc;
    pthread_mutex_lock(&symbols.mutex);
    rc = loaded(function, false, &symbol);
    if (rc == 0 && !symbol->kernel) {
        rc = THE(cuLibraryGetKernel)(&symbol->kernel, symbol->binary->library, symbol->name);
        if (rc == CUDA_ERROR_NOT_FOUND)
            rc = cudaErrorInvalidDeviceFunction;
    }
    if (rc == 0)
        *out = symbol->kernel;
    pthread_mutex_unlock(&symbols.mutex);
    if (rc == cudaErrorInvalidDeviceFunction && is_handle(function)) {
        *out = (CUkernel)function;
        rc = 0;
    }
    return rc;
}

int variable_of(const void *host, CUdeviceptr *address, size_t *bytes)
{
    struct symbol *symbol;
    int rc = in_context();
    if (rc)
        return rc;
    pthread_mutex_lock(&symbols.mutex);
    rc = loaded(host, true, &symbol);
    if (rc == 0)
        rc = THE(cuLibraryGetGlobal)(address, bytes, symbol->binary->library, symbol->name);
    pthread_mutex_unlock(&symbols.mutex);
    return rc == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : rc;
}

EXPORT int cudaGetSymbolAddress(void **out, const void *symbol)
{
    size_t bytes;
    return settle(out ? variable_of(symbol, (CUdeviceptr *)out, &bytes) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
    CUdeviceptr address;
    return settle(bytes ? variable_of(symbol, &address, bytes) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cudaGetKernel(CUkernel *out, const void *function)
{
    return settle(out ? kernel_of(function, out) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int __cudaGetKernel(CUkernel *out, const void *function)
{
    return cudaGetKernel(out, function);
}

EXPORT int cudaGetFuncBySymbol(CUfunction *out, const void *function)
{
    CUkernel kernel;
    int rc = out ? kernel_of(function, &kernel) : CUDA_ERROR_INVALID_VALUE;
    return settle(rc ? rc : THE(cuKernelGetFunction)(out, kernel));
}
