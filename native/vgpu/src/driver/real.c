#include "driver/real.h"

#include "core/waits.h"
#include "driver/loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct hook hooks[HOOK_COUNT] = {
#define HOOK(library, name, kind, since, result, parameters, arguments) \
    [HOOK_##name] = {#name, (void *)name, NULL, LIBRARY_##library, KIND_##kind, since},
#include "../../hooks.def"
#undef HOOK
};

/* What a hook calls when the driver lacks the symbol. */
#define ABSENT_CUDA CUDA_ERROR_NOT_FOUND
#define ABSENT_NVML NVML_ERROR_FUNCTION_NOT_FOUND
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define HOOK(library, name, kind, since, result, parameters, arguments) \
    static result absent_##name parameters \
    { \
        return ABSENT_##library; \
    }
#include "../../hooks.def"
#undef HOOK
#pragma GCC diagnostic pop

struct real real_table = {
#define HOOK(library, name, kind, since, result, parameters, arguments) .name = absent_##name,
#include "../../hooks.def"
#undef HOOK
};

int real_loaded[2];
__thread int inside_driver;

static void *const hook_cells[HOOK_COUNT] = {
#define HOOK(library, name, kind, since, result, parameters, arguments) [HOOK_##name] = &real_table.name,
#include "../../hooks.def"
#undef HOOK
};

static const struct {
    const char *name;
    void *cell;
    enum hook_library library;
} needs[] = {
#define NEED(library, name, result, parameters) {#name, &real_table.name, LIBRARY_##library},
#include "needs.def"
#undef NEED
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

void real_after_fork(void)
{
    loading = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void fill(enum hook_library library, void *handle)
{
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].library != library)
            continue;
        void *address = loader_symbol(handle, hooks[i].name);
        if (address == NULL || address == hooks[i].function)
            continue;
        memcpy(hook_cells[i], &address, sizeof address);
        hooks[i].address = address;
    }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (needs[i].library != library)
            continue;
        void *address = loader_symbol(handle, needs[i].name);
        memcpy(needs[i].cell, &address, sizeof address);
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
