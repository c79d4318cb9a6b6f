/*
 * threads LIMIT_BYTES: eight threads allocate, free, ask for memory information and launch at once, one of them before
 * anything was initialised. No answer may be anything else than success or out of memory, and free memory may never exceed
 * the limit. Prints [grants, refusals].
 *
 *     threads LIMIT_BYTES GRAIN      blocks are multiples of GRAIN, and the work begins when a line has come from stdin, so that
 *                                    the caller can wait until every process has its context; says "ready" before
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 3000, HELD = 8 };

static void *cuda, *context, *function;
static size_t limit, grain = 1;
static unsigned long grants, refusals, wrong;

static void *need(const char *name)
{
    void *found = dlsym(cuda, name);
    if (found == NULL)
        exit(2);
    return found;
}

static void *work(void *data)
{
    unsigned seed = (unsigned)(size_t)data;
    unsigned long long held[HELD] = {0};
    int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))need("cuMemAlloc_v2");
    int (*release)(unsigned long long) = (int (*)(unsigned long long))need("cuMemFree_v2");
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))need("cuMemGetInfo_v2");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        need("cuLaunchKernel");
    ((int (*)(void *))need("cuCtxSetCurrent"))(context);
    for (int i = 0; i < ROUNDS; i++) {
        int at = rand_r(&seed) % HELD;
        size_t available = 0, total = 0;
        if (held[at] != 0)
            wrong += release(held[at]) != 0;
        held[at] = 0;
        size_t wanted = 1 + (size_t)rand_r(&seed) % (limit / 16);
        int rc = allocate(&held[at], (wanted + grain - 1) / grain * grain);
        __atomic_add_fetch(rc == 0 ? &grants : rc == 2 ? &refusals : &wrong, 1, __ATOMIC_RELAXED);
        if (rc != 0)
            held[at] = 0;
        wrong += info(&available, &total) != 0 || total != limit || available > limit;
        wrong += launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0;
    }
    for (int i = 0; i < HELD; i++)
        if (held[i] != 0)
            wrong += release(held[i]) != 0;
    return NULL;
}

static void *early(void *nothing)
{
    unsigned long long block;
    for (int i = 0; i < 100; i++) /* the driver's own answer, whatever it is */
        ((int (*)(unsigned long long *, size_t))need("cuMemAlloc_v2"))(&block, 1 << 20);
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], first;
    void *module;
    limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL)
        return 2;
    pthread_create(&first, NULL, early, NULL);
    if (((int (*)(unsigned))need("cuInit"))(0))
        return 3;
    int rc;
    while ((rc = ((int (*)(void **, int))need("cuDevicePrimaryCtxRetain"))(&context, 0)) == 2)
        usleep(200); /* another one holds all there is, now and then */
    if (rc != 0 || ((int (*)(void *))need("cuCtxSetCurrent"))(context) ||
        ((int (*)(void **, const void *))need("cuModuleLoadData"))(&module, "pumice-kernel name=k ns=1000\n") ||
        ((int (*)(void **, void *, const char *))need("cuModuleGetFunction"))(&function, module, "k"))
        return 3;
    pthread_join(first, NULL);
    if (argc > 2) {
        grain = strtoull(argv[2], NULL, 10);
        puts("ready");
        fflush(stdout);
        getchar();
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (wrong != 0)
        fprintf(stderr, "%lu answers were wrong\n", wrong);
    printf("[%lu, %lu]\n", grants, refusals);
    return wrong == 0 ? 0 : 4;
}
