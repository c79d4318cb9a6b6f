/* The driver's functions, asked for by name of the libcuda.so.1 that the loader finds, as a program on the driver API would: what stands
 * in front of the driver is asked first, and holds. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>

BIND(dlsym, OLDEST); /* old_glibc.h; not there, for libvgpu.so defines its own */

static struct row { const char *name; int version; void *_Atomic found[2]; } rows[] = {
#define PLAIN(n, name, driver, version) {#driver, version, {0}},
#define CALL PLAIN
#define STREAM PLAIN
#define DRIVER(name, version, parameters) {#name, version, {0}},
#define REFUSED(name)
#include "calls.def"
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static driver_cuGetProcAddress *_Atomic look_up;
static _Atomic bool ready;

static int not_there(void)
{
    return cudaErrorCallRequiresNewerDriver;
}

void *driver_function(enum driver_row row, bool per_thread)
{
    void *found = rows[row].found[per_thread];
    if (!found) {
        int status = 0;
        driver_cuGetProcAddress *ask = look_up;
        if (!ask || ask(rows[row].name, &found, rows[row].version, per_thread ? 2 : 0, &status) || !found)
            found = (void *)not_there;
        if (ask)
            rows[row].found[per_thread] = found;
    }
    return found;
}

static int begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
    int (*version_of)(int *) = library ? (int (*)(int *))dlsym(library, "cuDriverGetVersion") : NULL;
    driver_cuGetProcAddress *ask = library ? (driver_cuGetProcAddress *)dlsym(library, "cuGetProcAddress_v2") : NULL;
    int version = 0;
    if (!init || !version_of || !ask || version_of(&version) || version / 1000 < RUNTIME)
        return cudaErrorInsufficientDriver;
    look_up = ask;
    int rc = init(0);
    ready = rc == CUDA_SUCCESS;
    return rc;
}

int driver_ready(void)
{
    if (ready)
        return 0;
    pthread_mutex_lock(&mutex);
    int rc = ready ? 0 : begin();
    pthread_mutex_unlock(&mutex);
    return rc;
}

EXPORT int cudaDriverGetVersion(int *version)
{
    if (!version)
        return settle(CUDA_ERROR_INVALID_VALUE);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*version_of)(int *) = library ? (int (*)(int *))dlsym(library, "cuDriverGetVersion") : NULL;
    *version = 0; /* no driver */
    return settle(version_of ? version_of(version) : 0);
}

EXPORT int cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return settle(CUDA_ERROR_INVALID_VALUE);
    *version = RUNTIME_VERSION;
    return 0;
}

/* ---- the driver's own functions, for whoever asks the runtime for them ---- */

static int entry_point(const char *symbol, void **out, int version, uint64_t flags, int *status)
{
    int rc = driver_ready(), found = 0;
    if (rc)
        return rc;
    if (!symbol || !out)
        return CUDA_ERROR_INVALID_VALUE;
    rc = THE(cuGetProcAddress)(symbol, out, version, flags, &found);
    if (status)
        *status = found;
    return rc || status || !found ? rc : CUDA_ERROR_NOT_FOUND;
}

#define ENTRY_POINTS(suffix, more) \
    EXPORT int cudaGetDriverEntryPointByVersion##suffix(const char *symbol, void **out, unsigned version, unsigned long long flags, int *status) \
    { \
        return settle(entry_point(symbol, out, (int)version, flags ? flags : more, status)); \
    } \
    EXPORT int cudaGetDriverEntryPoint##suffix(const char *symbol, void **out, unsigned long long flags OR_STATUS) \
    { \
        return settle(entry_point(symbol, out, RUNTIME_VERSION, flags ? flags : more, STATUS)); \
    }
#if RUNTIME == 11
#define OR_STATUS
#define STATUS NULL
#else
#define OR_STATUS , int *status
#define STATUS status
#endif
ENTRY_POINTS(, 0)
ENTRY_POINTS(_ptsz, 2)
