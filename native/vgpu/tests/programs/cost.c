/*
 * What calls cost: prints {name: [ns per round...]}, once per round interleaved by the caller (run native and under the
 * library in turn). On the emulated machine or a real card; the driver's own cost is in both.
 *
 *     cost launch|median|alloc|alloc100k|refuse|module ROUNDS
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAUNCHES = 20000, BATCH = 500, PAIRS = 5000, LIVE = 100000, REFUSALS = 20000, MODULES = 500 };

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*synchronize)(void);
static int (*allocate)(unsigned long long *, size_t);
static int (*release)(unsigned long long);
static int (*info)(size_t *, size_t *);
static int (*load)(void **, const void *);
static int (*unload)(void *);
static int (*find)(void **, void *, const char *);
static void *function;

/* PTX, so that a real card runs it too; the emulated machine takes the duration from the name. */
static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry noop_0ns()\n{\n    ret;\n}\n";

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *need(void *cuda, const char *name)
{
    void *found = dlsym(cuda, name);
    if (found == NULL)
        exit(2);
    return found;
}

static void open_gpu(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context, *module;
    if (cuda == NULL)
        exit(2);
    launch = need(cuda, "cuLaunchKernel");
    synchronize = need(cuda, "cuCtxSynchronize");
    allocate = need(cuda, "cuMemAlloc_v2");
    release = need(cuda, "cuMemFree_v2");
    info = need(cuda, "cuMemGetInfo_v2");
    load = need(cuda, "cuModuleLoadData");
    unload = need(cuda, "cuModuleUnload");
    find = need(cuda, "cuModuleGetFunction");
    if (((int (*)(unsigned))need(cuda, "cuInit"))(0) ||
        ((int (*)(void **, int))need(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0) ||
        ((int (*)(void *))need(cuda, "cuCtxSetCurrent"))(context) ||
        load(&module, image) || find(&function, module, "noop_0ns"))
        exit(3);
}

static double launch_round(void)
{
    double spent = 0;
    for (int n = 0; n < LAUNCHES; n += BATCH) {
        double start = now_ns();
        for (int i = 0; i < BATCH; i++)
            if (launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0)
                exit(4);
        spent += now_ns() - start;
        synchronize();
    }
    return spent / LAUNCHES;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median launch: groups of 10, so that reading the clock is a tenth of it and a measured launch is in few of them. */
static double median_round(void)
{
    enum { GROUP = 10, GROUPS = LAUNCHES / GROUP };
    static double groups[GROUPS];
    for (int n = 0; n < GROUPS; n++) {
        double start = now_ns();
        for (int i = 0; i < GROUP; i++)
            launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        groups[n] = (now_ns() - start) / GROUP;
        if (n % 50 == 0)
            synchronize();
    }
    qsort(groups, GROUPS, sizeof *groups, by_size);
    return groups[GROUPS / 2];
}

static double alloc_round(void)
{
    unsigned long long block;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (allocate(&block, 4096) != 0 || release(block) != 0)
            exit(5);
    return (now_ns() - start) / PAIRS;
}

static double refuse_round(void)
{
    unsigned long long block;
    size_t available, total;
    info(&available, &total);
    double start = now_ns();
    for (int i = 0; i < REFUSALS; i++)
        if (allocate(&block, available + 1) != 2)
            exit(6);
    return (now_ns() - start) / REFUSALS;
}

static double module_round(void)
{
    double start = now_ns();
    for (int i = 0; i < MODULES; i++) {
        void *module, *kernel;
        if (load(&module, image) != 0 || find(&kernel, module, "noop_0ns") != 0 || unload(module) != 0)
            exit(8);
    }
    return (now_ns() - start) / MODULES;
}

static double round_of(const char *mode)
{
    if (strcmp(mode, "launch") == 0)
        return launch_round();
    if (strcmp(mode, "median") == 0)
        return median_round();
    if (strcmp(mode, "refuse") == 0)
        return refuse_round();
    return strcmp(mode, "module") == 0 ? module_round() : alloc_round();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "launch";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    unsigned long long block;
    open_gpu();
    for (int i = 0; strcmp(mode, "alloc100k") == 0 && i < LIVE; i++)
        if (allocate(&block, 1024) != 0)
            return 7;
    printf("[");
    for (int i = 0; i < rounds; i++)
        printf("%s%.2f", i ? ", " : "", round_of(mode));
    printf("]\n");
    return 0;
}
