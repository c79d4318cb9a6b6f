/* Nanoseconds of one cuLaunchKernel on the emulated machine: the shortest of ROUNDS rounds, and the median. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, LAUNCHES = 200000 };

typedef void *handle;
int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(handle *, int), cuCtxSetCurrent(handle);
int cuModuleLoadData(handle *, const void *), cuModuleGetFunction(handle *, handle, const char *), cuCtxSynchronize(void);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: error %d\n", what, code);
        exit(1);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    int device;
    handle context, module, kernel;
    double ns[ROUNDS];
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, "pumice-kernel name=tiny ns=1\n"), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "tiny"), "cuModuleGetFunction");
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        for (int i = 0; i < LAUNCHES; i++)
            check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        clock_gettime(CLOCK_MONOTONIC, &ended);
        ns[round] = ((ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec)) / LAUNCHES;
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    qsort(ns, ROUNDS, sizeof *ns, ascending);
    printf("{\"median_ns\": %.1f, \"best_ns\": %.1f}\n", ns[ROUNDS / 2], ns[0]);
    return 0;
}
