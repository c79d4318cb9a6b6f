#include "driver/real.h"

#include "core/after_fork.h"
#include "core/waits.h"
#include "driver/loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct hook hooks[HOOK_COUNT] = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) \
    [HOOK_##name] = {#name, (void *)name, NULL, LIBRARY_##library, KIND_##kind, since},
#include "../../hooks.def"
#undef HOOK
};

/* What is called where the driver lacks the symbol. */
#define ABSENT_CUDA CUDA_ERROR_NOT_FOUND
#define ABSENT_NVML NVML_ERROR_FUNCTION_NOT_FOUND
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEED(library, name, result, parameters) \
    static result absent_##name parameters \
    { \
        return ABSENT_##library; \
    }
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) NEED(library, name, result, parameters)
#include "../../hooks.def"
#include "needs.def"
#undef HOOK
#undef NEED
#pragma GCC diagnostic pop

struct real real_table = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) .name = absent_##name,
#define NEED(library, name, result, parameters) .name = absent_##name,
#include "../../hooks.def"
#include "needs.def"
#undef HOOK
#undef NEED
};

int real_loaded[2];
__thread int inside_driver;

/* The first HOOK_COUNT are those of the hooks. */
static const struct {
    const char *name;
    void *cell;
    enum hook_library library;
} symbols[] = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) {#name, &real_table.name, LIBRARY_##library},
#define NEED(library, name, result, parameters) {#name, &real_table.name, LIBRARY_##library},
#include "../../hooks.def"
#include "needs.def"
#undef HOOK
#undef NEED
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(loading);

static void fill(enum hook_library library, void *handle)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = symbols[i].library == library ? loader_symbol(handle, symbols[i].name) : NULL;
        if (address == NULL || (i < HOOK_COUNT && address == hooks[i].function))
            continue;
        memcpy(symbols[i].cell, &address, sizeof address);
        if (i < HOOK_COUNT)
            hooks[i].address = address;
    }
}

/*
 * Opened by name, so it is the file that the program itself got or would get. Where it cannot be opened nothing is marked
 * as loaded: a program may make it available later.
 */
void real_load(enum hook_library library)
{
    static const char *const names[] = {[LIBRARY_CUDA] = "libcuda.so.1", [LIBRARY_NVML] = "libnvidia-ml.so.1"};
    inside_driver++; /* the driver's constructors may look up names */
    void *handle = dlopen(names[library], RTLD_LAZY | RTLD_LOCAL);
    if (handle != NULL) {
        mutex_take(&loading);
        if (!real_loaded[library]) {
            fill(library, handle);
            __atomic_store_n(&real_loaded[library], 1, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&loading);
    }
    inside_driver--;
}
