/*
 * What calls cost: prints {name: [ns per round...]}, once per round interleaved by the caller (run native and under the
 * library in turn). On the emulated machine or a real card; the driver's own cost is in both.
 *
 *     cost MODE ROUNDS
 *
 *     launch, median     one launch: the mean with all that is measured, or the median
 *     threads            a launch of each of eight threads
 *     graph              a launch of a graph of 20 nodes
 *     alloc, alloc100k, alloc2m, alloc1g, async      a pair of allocation and free: 4 KiB, the same beside 100,000 live
 *                        blocks, 2 MiB, 1 GiB, 4 KiB stream-ordered
 *     refuse, info, module       a refused allocation; a question for memory; load, look up and unload a module
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAUNCHES = 20000, BATCH = 500, PAIRS = 5000, LIVE = 100000, REFUSALS = 20000, MODULES = 500, THREADS = 8, NODES = 20, BIG = 200 };

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*synchronize)(void);
static int (*allocate)(unsigned long long *, size_t);
static int (*release)(unsigned long long);
static int (*info)(size_t *, size_t *);
static int (*load)(void **, const void *);
static int (*unload)(void *);
static int (*find)(void **, void *, const char *);
static void *function, *context;
static void *cuda;

/* PTX, so that a real card runs it too; the emulated machine takes the duration from the name. */
static char image[256];
static const char *const headers[] = {".version 6.0\n.target sm_50\n", ".version 6.3\n.target sm_75\n", ".version 7.0\n.target sm_80\n",
                                      ".version 7.8\n.target sm_90\n", ".version 8.6\n.target sm_100\n"};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *need(const char *name)
{
    void *found = dlsym(cuda, name);
    if (found == NULL)
        exit(2);
    return found;
}

/* With the first header that this driver accepts: newer ones may refuse the oldest targets. */
static int load_image(void **module)
{
    int rc = 1;
    for (size_t i = 0; i < sizeof headers / sizeof *headers && rc != 0; i++) {
        snprintf(image, sizeof image, "%s.address_size 64\n.visible .entry noop_0ns()\n{\n    ret;\n}\n", headers[i]);
        rc = load(module, image);
    }
    return rc;
}

static void open_gpu(void)
{
    void *module;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL)
        exit(2);
    launch = need("cuLaunchKernel");
    synchronize = need("cuCtxSynchronize");
    allocate = need("cuMemAlloc_v2");
    release = need("cuMemFree_v2");
    info = need("cuMemGetInfo_v2");
    load = need("cuModuleLoadData");
    unload = need("cuModuleUnload");
    find = need("cuModuleGetFunction");
    if (((int (*)(unsigned))need("cuInit"))(0) ||
        ((int (*)(void **, int))need("cuDevicePrimaryCtxRetain"))(&context, 0) ||
        ((int (*)(void *))need("cuCtxSetCurrent"))(context) ||
        load_image(&module) || find(&function, module, "noop_0ns"))
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

static void *launch_many(void *mean)
{
    ((int (*)(void *))need("cuCtxSetCurrent"))(context);
    double start = now_ns();
    for (int i = 0; i < BATCH; i++)
        if (launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0)
            exit(4);
    *(double *)mean = (now_ns() - start) / BATCH;
    return NULL;
}

static double threads_round(void)
{
    double spent = 0;
    for (int n = 0; n < LAUNCHES; n += BATCH) {
        pthread_t threads[THREADS];
        double means[THREADS];
        for (int i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, launch_many, &means[i]) != 0)
                exit(9);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            spent += means[i] / THREADS;
        }
        synchronize();
    }
    return spent / (LAUNCHES / BATCH);
}

/* The graph is made once; its launches are few in a batch, for the card has to do all of its nodes. */
static double graph_round(void)
{
    static void *stream, *executable;
    int (*run)(void *, void *) = (int (*)(void *, void *))need("cuGraphLaunch");
    if (executable == NULL) {
        void *graph;
        if (((int (*)(void **, unsigned))need("cuStreamCreate"))(&stream, 1) ||
            ((int (*)(void *, int))need("cuStreamBeginCapture_v2"))(stream, 0))
            exit(10);
        for (int i = 0; i < NODES; i++)
            if (launch(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) != 0)
                exit(10);
        if (((int (*)(void *, void **))need("cuStreamEndCapture"))(stream, &graph) ||
            ((int (*)(void **, void *, unsigned long long))need("cuGraphInstantiateWithFlags"))(&executable, graph, 0))
            exit(10);
    }
    double spent = 0;
    for (int n = 0; n < LAUNCHES / NODES; n += BATCH / NODES) {
        double start = now_ns();
        for (int i = 0; i < BATCH / NODES; i++)
            if (run(executable, stream) != 0)
                exit(10);
        spent += now_ns() - start;
        synchronize();
    }
    return spent / (LAUNCHES / NODES);
}

static double alloc_round(size_t bytes, int pairs)
{
    unsigned long long block;
    double start = now_ns();
    for (int i = 0; i < pairs; i++)
        if (allocate(&block, bytes) != 0 || release(block) != 0)
            exit(5);
    return (now_ns() - start) / pairs;
}

static double async_round(void)
{
    int (*take)(unsigned long long *, size_t, void *) = (int (*)(unsigned long long *, size_t, void *))need("cuMemAllocAsync");
    int (*give)(unsigned long long, void *) = (int (*)(unsigned long long, void *))need("cuMemFreeAsync");
    unsigned long long block;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (take(&block, 4096, NULL) != 0 || give(block, NULL) != 0)
            exit(5);
    double spent = now_ns() - start;
    synchronize();
    return spent / PAIRS;
}

static double info_round(void)
{
    size_t available, total;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (info(&available, &total) != 0)
            exit(11);
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

static double small_pairs(void)
{
    return alloc_round(4096, PAIRS);
}

static double large_pairs(void)
{
    return alloc_round(2u << 20, BIG);
}

static double huge_pairs(void)
{
    return alloc_round(1u << 30, BIG);
}

static const struct {
    const char *name;
    double (*round)(void);
} modes[] = {
    {"launch", launch_round}, {"median", median_round},   {"threads", threads_round}, {"graph", graph_round},
    {"alloc", small_pairs},   {"alloc100k", small_pairs}, {"alloc2m", large_pairs},   {"alloc1g", huge_pairs},
    {"async", async_round},   {"refuse", refuse_round},   {"info", info_round},       {"module", module_round},
};

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "launch";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    unsigned long long block;
    double (*round)(void) = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i].name) == 0)
            round = modes[i].round;
    if (round == NULL)
        return 2;
    open_gpu();
    for (int i = 0; strcmp(mode, "alloc100k") == 0 && i < LIVE; i++)
        if (allocate(&block, 1024) != 0)
            return 7;
    printf("[");
    for (int i = 0; i < rounds; i++)
        printf("%s%.2f", i ? ", " : "", round());
    printf("]\n");
    return 0;
}
