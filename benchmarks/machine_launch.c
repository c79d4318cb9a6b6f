/* Nanoseconds of processor time of one cuLaunchKernel on the emulated machine, median and best of as many rounds
 * as the argument says.
 *
 * Launches come in batches that fit the queue of the card, and waiting for a batch to end is not timed: it is the call that is
 * measured, as a program meets it that keeps its card busy. "idle" is the dearer call on a card that has nothing to do. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_ROUNDS = 64, BATCHES = 40, BATCH = 500 };

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

/* Processor time of one launch, over one round. */
static double round_of(handle kernel)
{
    double spent = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
        for (int i = 0; i < BATCH; i++)
            check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
        spent += (double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec);
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    return spent / (BATCHES * BATCH);
}

static void measure(handle module, const char *name, int rounds, double *median, double *best)
{
    handle kernel;
    double ns[MOST_ROUNDS];
    check(cuModuleGetFunction(&kernel, module, name), "cuModuleGetFunction");
    for (int round = 0; round < rounds; round++)
        ns[round] = round_of(kernel);
    qsort(ns, rounds, sizeof *ns, ascending);
    *median = ns[rounds / 2];
    *best = ns[0];
}

int main(int count, char **arguments)
{
    int device, rounds = count > 1 ? atoi(arguments[1]) : 0;
    handle context, module;
    double median, best, idle_median, idle_best;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: %s ROUNDS (1 to %d)\n", arguments[0], MOST_ROUNDS);
        return 2;
    }
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, "pumice-kernel name=busy ns=2000\npumice-kernel name=idle ns=1\n"), "cuModuleLoadData");
    measure(module, "busy", rounds, &median, &best);
    measure(module, "idle", rounds, &idle_median, &idle_best);
    printf("{\"median_ns\": %.1f, \"best_ns\": %.1f, \"idle_median_ns\": %.1f, \"idle_best_ns\": %.1f}\n", median, best, idle_median,
           idle_best);
    return 0;
}
