/*
 * The driver and NVML behind the library: a typed table of their real functions, filled at first need.
 *
 * The library calls CUDA(name(...)) and NVML(name(...)), which mark the thread as being inside the driver: what the driver itself asks
 * of its own public names then passes through untouched (NVML 570 and later calls nvmlInitWithFlags through its PLT). A symbol that the
 * driver lacks is a stub that answers "not found", so nobody tests for it and nobody jumps to NULL.
 */
#ifndef VGPU_REAL_H
#define VGPU_REAL_H

#include "driver/abi.h"

#include <stdbool.h>

enum hook_library { LIBRARY_CUDA, LIBRARY_NVML };
enum hook_kind { KIND_ENTRY, KIND_INIT, KIND_ALLOC, KIND_FREE, KIND_CONTEXT, KIND_TRACK, KIND_LAUNCH, KIND_QUERY, KIND_REFUSE };

struct real {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) result(*name) parameters;
#include "../../hooks.def"
#undef HOOK
#define NEED(library, name, result, parameters) result(*name) parameters;
#include "needs.def"
#undef NEED
};

/* The hooks themselves: the exported names. */
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) \
    __attribute__((visibility("default"))) result name parameters;
#include "../../hooks.def"
#undef HOOK

struct hook {
    const char *name;
    void *function;          /* ours */
    void *address;           /* the driver's, NULL while unknown or missing */
    enum hook_library library;
    enum hook_kind kind;
    int since;
};

enum {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) HOOK_##name,
#include "../../hooks.def"
#undef HOOK
    HOOK_COUNT
};

extern struct hook hooks[HOOK_COUNT];
extern struct real real_table;
extern int real_loaded[2];
extern __thread int inside_driver __attribute__((tls_model("initial-exec")));

void real_load(enum hook_library library);

static inline const struct real *real_cuda(void)
{
    if (__builtin_expect(!__atomic_load_n(&real_loaded[LIBRARY_CUDA], __ATOMIC_ACQUIRE), 0))
        real_load(LIBRARY_CUDA);
    return &real_table;
}

static inline const struct real *real_nvml(void)
{
    if (__builtin_expect(!__atomic_load_n(&real_loaded[LIBRARY_NVML], __ATOMIC_ACQUIRE), 0))
        real_load(LIBRARY_NVML);
    return &real_table;
}

#define CUDA(call) INSIDE(real_cuda()->call)
#define NVML(call) INSIDE(real_nvml()->call)
#define INSIDE(call) \
    __extension__({ \
        inside_driver++; \
        __typeof__(call) inside_result = (call); \
        inside_driver--; \
        inside_result; \
    })

/* NULL when the name is not in the table. */
const struct hook *hook_by_name(const char *name);

/* The hook whose real function lies at this address and whose name has this base and stream flavour; NULL if none. */
const struct hook *hook_by_address(void *address, const char *base, bool per_thread);

/* The hook that cuGetProcAddress would mean, for drivers whose pointers are not their exported symbols. */
const struct hook *hook_by_version(const char *base, int version, bool per_thread);

#endif
