/* NVML from C: instances made and destroyed by many at once, killed in the middle, and what is in use. */
#include "check.h"

#include <pthread.h>

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t, *nvmlGpuInstance_t, *nvmlComputeInstance_t;
typedef struct { unsigned start, size; } Placement;
typedef struct { nvmlDevice_t device; unsigned id, profile; Placement placement; } InstanceInfo;
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t, unsigned, nvmlReturn_t *);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned *, unsigned *);
nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t, unsigned, nvmlGpuInstance_t *);
nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t, unsigned, const Placement *, nvmlGpuInstance_t *);
nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t);
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t, InstanceInfo *);
nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *);
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, void *);

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, IN_USE = 19, NO_ROOM = 23, GPU_IS_LOST = 15 };
enum { P1G = 19, P2G = 14, P3G = 9, P7G = 0 };

static nvmlDevice_t card(void)
{
    nvmlDevice_t d;
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetHandleByIndex_v2(0, &d));
    return d;
}

static void instances_are_refused_as_hardware_refuses_them(void)
{
    fresh_machine("mig=1");
    nvmlDevice_t d = card();
    nvmlReturn_t status;
    nvmlGpuInstance_t a, b, c;
    nvmlComputeInstance_t ci, other;
    EQUAL(nvmlDeviceCreateGpuInstance(d, P3G, &a), NOT_SUPPORTED); /* MIG is off */
    OK(nvmlDeviceSetMigMode(d, 1, &status));
    EQUAL(status, 0);
    OK(nvmlDeviceCreateGpuInstance(d, P3G, &a));
    OK(nvmlDeviceCreateGpuInstance(d, P3G, &b));
    EQUAL(nvmlDeviceCreateGpuInstance(d, P1G, &c), NO_ROOM);
    EQUAL(nvmlDeviceCreateGpuInstance(d, 77, &c), INVALID_ARGUMENT);
    EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(d, P3G, &(Placement){2, 4}, &c), INVALID_ARGUMENT);
    OK(nvmlGpuInstanceCreateComputeInstance(a, 2, &ci));
    EQUAL(nvmlGpuInstanceCreateComputeInstance(a, 0, &other), NO_ROOM);
    EQUAL(nvmlGpuInstanceCreateComputeInstance(b, 3, &other), NOT_SUPPORTED); /* four slices of three */
    EQUAL(nvmlGpuInstanceDestroy(a), IN_USE);
    OK(nvmlDeviceSetMigMode(d, 0, &status));
    EQUAL(status, IN_USE);
    OK(nvmlComputeInstanceDestroy(ci));
    EQUAL(nvmlComputeInstanceDestroy(ci), INVALID_ARGUMENT);
    OK(nvmlGpuInstanceDestroy(a));
    EQUAL(nvmlGpuInstanceDestroy(a), INVALID_ARGUMENT);
    InstanceInfo left;
    OK(nvmlGpuInstanceGetInfo(b, &left));
    unsigned half = left.placement.start ? 0 : 4;
    OK(nvmlDeviceCreateGpuInstanceWithPlacement(d, P1G, &(Placement){half + 1, 1}, &a));
    EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(d, P2G, &(Placement){half, 2}, &c), NO_ROOM); /* overlaps */
    drop_machine();
}

static void an_instance_in_use_cannot_go(void)
{
    fresh_machine("mig=2");
    nvmlDevice_t d = card(), mig;
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    unsigned long long memory[3];
    char name[96], uuid[96];
    OK(nvmlDeviceCreateGpuInstance(d, P2G, &gi));
    OK(nvmlGpuInstanceCreateComputeInstance(gi, 1, &ci));
    OK(nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &mig));
    EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(d, 1, &(nvmlDevice_t){0}), NOT_FOUND);
    OK(nvmlDeviceGetName(mig, name, sizeof name));
    CHECK(strcmp(name, "NVIDIA A100-SXM4-40GB MIG 2g.10gb") == 0);
    OK(nvmlDeviceGetUUID(mig, uuid, sizeof uuid));
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    int ready[2], quit[2];
    char byte;
    CHECK(pipe(ready) == 0 && pipe(quit) == 0);
    if (child() == 0) {
        CUdeviceptr p;
        size_t total;
        begin(0);
        OK(cuDeviceTotalMem_v2(&total, 0));
        EQUAL(total, 9856ull << 20);
        OK(cuMemAlloc_v2(&p, 1000 << 20));
        EQUAL(cuMemAlloc_v2(&p, 9000ull << 20), 2);
        CHECK(write(ready[1], "r", 1) == 1);
        CHECK(read(quit[0], &byte, 1) == 1);
        exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    OK(nvmlDeviceGetMemoryInfo(mig, memory));
    EQUAL(memory[0], 9856ull << 20);
    EQUAL(memory[2], 1300ull << 20);
    struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } list[4];
    unsigned count = 4;
    OK(nvmlDeviceGetComputeRunningProcesses_v3(mig, &count, list));
    EQUAL(count, 1);
    EQUAL(list[0].bytes, 1300ull << 20);
    InstanceInfo info;
    OK(nvmlGpuInstanceGetInfo(gi, &info));
    EQUAL(list[0].gi, info.id);
    count = 0;
    EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(mig, &count, NULL), INSUFFICIENT_SIZE);
    EQUAL(nvmlComputeInstanceDestroy(ci), IN_USE);
    CHECK(write(quit[1], "q", 1) == 1);
    children_end(1);
    OK(nvmlComputeInstanceDestroy(ci));
    EQUAL(nvmlDeviceGetName(mig, name, sizeof name), INVALID_ARGUMENT); /* a stale handle */
    OK(nvmlGpuInstanceDestroy(gi));
    drop_machine();
}

/* ---- many at once ---- */

static void *make_and_break(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    nvmlDevice_t d;
    OK(nvmlDeviceGetHandleByIndex_v2(0, &d));
    static const unsigned profiles[] = {P1G, P2G, P3G, P7G};
    for (int i = 0; i < 300; i++) {
        nvmlGpuInstance_t gi;
        nvmlReturn_t rc = nvmlDeviceCreateGpuInstance(d, profiles[rand_r(&seed) % 4], &gi);
        CHECK(rc == 0 || rc == NO_ROOM);
        if (rc)
            continue;
        InstanceInfo info;
        OK(nvmlGpuInstanceGetInfo(gi, &info));
        nvmlComputeInstance_t ci;
        OK(nvmlGpuInstanceCreateComputeInstance(gi, 0, &ci));
        EQUAL(nvmlGpuInstanceDestroy(gi), IN_USE);
        OK(nvmlComputeInstanceDestroy(ci));
        OK(nvmlGpuInstanceDestroy(gi));
    }
    return NULL;
}

static void threads_and_processes_never_share_a_slice(void)
{
    fresh_machine("mig=2");
    enum { PROCESSES = 4, THREADS = 4 };
    for (int p = 0; p < PROCESSES; p++) {
        if (child())
            continue;
        pthread_t threads[THREADS];
        OK(nvmlInit_v2());
        for (uintptr_t t = 0; t < THREADS; t++)
            CHECK(pthread_create(&threads[t], NULL, make_and_break, (void *)(t * 7919 + (uintptr_t)p + 1)) == 0);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        OK(nvmlShutdown());
        exit(0);
    }
    children_end(PROCESSES);
    const struct machine_card *c = &pumice_machine_state()->card[0];
    for (int i = 0; i < MACHINE_INSTANCES; i++)
        EQUAL(c->instances[i].used, 0);
    drop_machine();
}

static bool overlap(const struct machine_card *c)
{
    unsigned slices = 0;
    for (int i = 0; i < MACHINE_INSTANCES; i++) {
        const struct machine_gpu_instance *g = &c->instances[i];
        unsigned mask = g->used ? ((1u << g->size) - 1) << g->start : 0;
        if (slices & mask)
            return true;
        slices |= mask;
    }
    return false;
}

static void a_process_killed_while_it_cuts_the_card_leaves_it_whole(void)
{
    fresh_machine("mig=2");
    for (int round = 0; round < 200; round++) {
        pid_t pid = child();
        if (pid == 0) {
            OK(nvmlInit_v2());
            for (;;)
                make_and_break((void *)(uintptr_t)(round + 1));
        }
        usleep(500 + (useconds_t)(round * 37 % 2000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        CHECK(!overlap(&pumice_machine_state()->card[0]));
        if (round % 10 == 0) /* what the dead left stays, as on hardware; an administrator takes it away */
            for (int i = 0; i < MACHINE_INSTANCES; i++)
                pumice_machine_state()->card[0].instances[i].used = 0;
    }
    nvmlGpuInstance_t gi;
    for (int i = 0; i < MACHINE_INSTANCES; i++)
        pumice_machine_state()->card[0].instances[i].used = 0;
    OK(nvmlDeviceCreateGpuInstance(card(), P7G, &gi));
    drop_machine();
}

static void a_lost_card_says_so_and_the_others_go_on(void)
{
    fresh_machine("cards=2");
    nvmlDevice_t d = card(), other;
    char name[96];
    OK(nvmlDeviceGetHandleByIndex_v2(1, &other));
    pumice_machine_state()->card[0].lost = 1;
    EQUAL(nvmlDeviceGetName(d, name, sizeof name), GPU_IS_LOST);
    EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &d), GPU_IS_LOST);
    OK(nvmlDeviceGetName(other, name, sizeof name));
    EQUAL(nvmlDeviceGetName((void *)8, name, sizeof name), INVALID_ARGUMENT);
    EQUAL(nvmlDeviceGetName((void *)UINT64_MAX, name, sizeof name), INVALID_ARGUMENT);
    EQUAL(nvmlGpuInstanceDestroy((void *)UINT64_MAX), INVALID_ARGUMENT);
    EQUAL(nvmlDeviceGetName(other, NULL, 96), INVALID_ARGUMENT);
    EQUAL(nvmlDeviceGetName(other, name, 5), INSUFFICIENT_SIZE);
    drop_machine();
}

int main(void)
{
    apart(instances_are_refused_as_hardware_refuses_them);
    apart(an_instance_in_use_cannot_go);
    apart(threads_and_processes_never_share_a_slice);
    apart(a_process_killed_while_it_cuts_the_card_leaves_it_whole);
    apart(a_lost_card_says_so_and_the_others_go_on);
    return 0;
}
