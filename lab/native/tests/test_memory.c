/* Memory: the card's limit, the witness, many processes and threads, killed processes. */
#include "check.h"

#include <pthread.h>

#define MIB (1ull << 20)

CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);

static void the_last_byte_can_be_had_and_no_more(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    EQUAL(free_now(), (8192 - 300) * MIB);
    CUdeviceptr all, more;
    EQUAL(cuMemAlloc_v2(&all, free_now() + 1), 2);
    OK(cuMemAlloc_v2(&all, free_now()));
    EQUAL(cuMemAlloc_v2(&more, 1), 2);
    EQUAL(free_now(), 0);
    OK(cuMemFree_v2(all));
    EQUAL(free_now(), (8192 - 300) * MIB);
    drop_machine();
}

static void managed_memory_gives_way_to_what_has_to_lie_on_the_card(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    begin(0);
    uint64_t base = free_now();
    CUdeviceptr managed, more, own;
    OK(cuMemAllocManaged(&managed, base + 2000 * MIB, 1)); /* more than there is */
    EQUAL(free_now(), 0);
    EQUAL(cuMemAlloc_v2(&own, base + 2 * MIB), 2);         /* with nobody's help does that fit, and nobody moves for it */
    EQUAL(free_now(), 0);
    OK(cuMemAlloc_v2(&own, 5000 * MIB));
    EQUAL(free_now(), 0);
    OK(cuMemAllocManaged(&more, 1000 * MIB, 1));
    OK(cuMemFree_v2(more));
    OK(cuMemFree_v2(own));
    EQUAL(free_now(), 5000 * MIB);
    OK(cuMemFree_v2(managed));
    EQUAL(free_now(), base);
    drop_machine();
}

static void a_large_block_costs_nothing_and_keeps_its_bytes(void)
{
    fresh_machine("memory_mib=81920");
    begin(0);
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 70000 * MIB));
    char in[4096], out[4096];
    memset(in, 'x', sizeof in);
    OK(cuMemcpyHtoD_v2(p + 69000 * MIB + 123, in, sizeof in));
    OK(cuMemcpyDtoH_v2(out, p + 69000 * MIB + 123, sizeof out));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(cuMemcpyDtoD_v2(p, p + 69000 * MIB + 123, sizeof in));
    OK(cuMemcpyDtoH_v2(out, p, sizeof out));
    CHECK(memcmp(in, out, sizeof in) == 0);
    unsigned word;
    OK(cuMemsetD32_v2(p + 4096, 0xabcd1234, 16));
    OK(cuMemcpyDtoH_v2(&word, p + 4096 + 60, 4));
    EQUAL(word, 0xabcd1234);
    EQUAL(cuMemcpyDtoH_v2(out, p + 70000 * MIB - 1, 2), 1);        /* over the end */
    EQUAL(cuMemcpyHtoD_v2(p, (void *)8, 16), 1);                   /* a host pointer that is none */
    drop_machine();
}

static uint64_t resident_kib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

static void filling_and_copying_a_large_block_touches_little(void)
{
    fresh_machine("memory_mib=81920");
    begin(0);
    CUdeviceptr p, q;
    unsigned word = 7;
    OK(cuMemAlloc_v2(&p, 30000 * MIB));
    OK(cuMemAlloc_v2(&q, 30000 * MIB));
    OK(cuMemcpyHtoD_v2(p + 20000 * MIB, &word, 4));
    uint64_t before = resident_kib();
    OK(cuMemcpyDtoD_v2(q, p, 30000 * MIB));
    char *host = malloc(64 * MIB);
    memset(host, 'x', 64 * MIB);
    before += 64 * 1024;
    OK(cuMemcpyDtoH_v2(host, q + 20000 * MIB - 32 * MIB, 64 * MIB));
    CHECK(host[0] == 0 && host[32 * MIB] == 7 && host[64 * MIB - 1] == 0);
    OK(cuMemcpyHtoD_v2(p + 100 * MIB, host, 64 * MIB));
    free(host);
    before += 64 * 1024;
    OK(cuMemcpyDtoH_v2(&word, p + 132 * MIB, 4));
    EQUAL(word, 7);
    OK(cuMemcpyDtoH_v2(&word, q + 20000 * MIB, 4));
    EQUAL(word, 7);
    OK(cuMemsetD32_v2(p, 0xffffffff, 30000 * MIB / 4));
    OK(cuMemcpyDtoH_v2(&word, p + 20000 * MIB, 4));
    EQUAL(word, 0xffffffff);
    OK(cuMemcpyDtoH_v2(&word, p + 30000 * MIB - 4, 4));
    EQUAL(word, 0xffffffff);
    OK(cuMemsetD32_v2(p, 0, 30000 * MIB / 4));
    OK(cuMemcpyDtoH_v2(&word, p + 20000 * MIB, 4));
    EQUAL(word, 0);
    CHECK(resident_kib() < before + (1 << 20)); /* of 60 GiB; sanitizers add their own */
    drop_machine();
}

static void a_hundred_thousand_live_blocks_are_no_burden(void)
{
    fresh_machine("memory_mib=81920");
    begin(0);
    enum { N = 100000 };
    static CUdeviceptr p[N];
    for (int i = 0; i < N; i++)
        OK(cuMemAlloc_v2(&p[i], i % 2 ? 700 : 400000));
    for (int i = 0; i < N; i += 3)
        OK(cuMemFree_v2(p[i]));
    for (int i = 0; i < N; i += 3)
        OK(cuMemAlloc_v2(&p[i], 600));
    for (int i = 0; i < N; i++)
        OK(cuMemFree_v2(p[i]));
    EQUAL(free_now(), (81920 - 300) * MIB);
    drop_machine();
}

static void garbage_gets_the_drivers_answer(void)
{
    fresh_machine("");
    CUcontext context = begin(0);
    CUdeviceptr p;
    uint64_t bad[] = {1, 8, 0xdeadbeef, 0x7fffffffffff, UINT64_MAX, 0x1020000000000000, 0x10f0000000000010};
    OK(cuMemAlloc_v2(&p, 100));
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *h = (void *)bad[i];
        EQUAL(cuMemFree_v2(bad[i]), 1);
        EQUAL(cuCtxSetCurrent(h), 201);
        EQUAL(cuCtxDestroy_v2(h), 201);
        EQUAL(cuLaunchKernel(h, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 400);
        EQUAL(cuEventQuery(h), 400);
        EQUAL(cuModuleUnload(h), 400);
        EQUAL(cuMemcpyDtoH_v2(h, p, 4), 1);
        if (bad[i] > 2)
            EQUAL(cuStreamSynchronize(h), 400);
        CUmodule module;
        EQUAL(cuModuleLoadData(&module, h), 1);
    }
    CUmodule module;
    EQUAL(cuModuleLoadData(&module, "no PTX at all, sorry"), 218);
    EQUAL(cuModuleLoadData(&module, "pumice-kernel nom=x\n"), 200);
    EQUAL(cuMemAlloc_v2(NULL, 4), 1);
    EQUAL(cuMemAlloc_v2(&p, 0), 1);
    EQUAL(cuMemAlloc_v2(&p, SIZE_MAX), 2);
    EQUAL(cuMemAlloc_v2(&p, SIZE_MAX / 2 + 1), 2);
    EQUAL(cuMemFree_v2(p + 1), 1);
    EQUAL(cuInit(1), 1);
    EQUAL(cuDeviceGet(&(CUdevice){0}, 1), 101);
    EQUAL(cuCtxCreate_v2(&context, 0, -1), 101);
    CUfunction f = kernel("pumice-kernel name=k ns=1\n", "k");
    EQUAL(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 1);
    EQUAL(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), 1);
    EQUAL(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1 << 30, NULL, NULL, NULL), 1);
    drop_machine();
}

/* ---- many at once ---- */

struct work { unsigned seed; uint64_t launches, requested; CUcontext context; CUfunction f; };

static void *toil(void *arg)
{
    struct work *w = arg;
    OK(cuCtxSetCurrent(w->context));
    CUdeviceptr held[16] = {0};
    uint64_t sizes[16] = {0};
    for (int i = 0; i < 60; i++) {
        unsigned slot = (unsigned)rand_r(&w->seed) % 16;
        if (held[slot]) {
            OK(cuMemFree_v2(held[slot]));
            w->requested -= sizes[slot];
            held[slot] = 0;
        } else {
            sizes[slot] = 1 + (uint64_t)rand_r(&w->seed) % (4 * MIB);
            if (cuMemAlloc_v2(&held[slot], sizes[slot]) == 0)
                w->requested += sizes[slot];
            else
                held[slot] = 0;
        }
        for (int n = 0; n < 10; n++, w->launches++)
            OK(run(w->f, NULL));
    }
    return NULL;
}

enum { PROCESSES = 64, THREADS = 4 };

static void toiling_process(int report, unsigned seed)
{
    CUcontext context = begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=100\n", "k");
    struct work work[THREADS];
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        work[t] = (struct work){seed * 31 + (unsigned)t, 0, 0, context, f};
        CHECK(pthread_create(&threads[t], NULL, toil, &work[t]) == 0);
    }
    uint64_t sums[3] = {(uint64_t)getpid(), 0, 0};
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        sums[1] += work[t].launches;
        sums[2] += work[t].requested;
    }
    OK(cuCtxSynchronize());
    CHECK(write(report, sums, sizeof sums) == sizeof sums);
}

static void sixty_four_processes_lose_no_update(void)
{
    fresh_machine("memory_mib=40960 context_mib=100 cards=1");
    int report[2];
    CHECK(pipe(report) == 0);
    for (int i = 0; i < PROCESSES; i++) {
        if (child() == 0) {
            toiling_process(report[1], (unsigned)i + 1);
            exit(0);
        }
    }
    children_end(PROCESSES);
    struct machine_state *m = pumice_machine_state();
    pumice_machine_reap(NULL);
    EQUAL(m->history_sequence, PROCESSES);
    for (int i = 0; i < PROCESSES; i++) {
        uint64_t sums[3];
        CHECK(read(report[0], sums, sizeof sums) == sizeof sums);
        const struct machine_past *past = NULL;
        for (int n = 0; n < PROCESSES; n++)
            if (m->history[n].pid == sums[0])
                past = &m->history[n];
        CHECK(past);
        EQUAL(past->cards[0].launches, sums[1]);
        EQUAL(past->cards[0].busy_ns, 100 * sums[1]);
        EQUAL(past->cards[0].leaked_bytes, sums[2]);
        EQUAL(past->killed, 0);
    }
    EQUAL(m->card[0].lanes[0].used_bytes, 0);
    drop_machine();
}

/* ---- kills ---- */

static void victim(unsigned seed)
{
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=50000\n", "k");
    CUevent e;
    OK(cuEventCreate(&e, 0));
    for (;;) {
        CUdeviceptr p = 0, q = 0;
        cuMemAlloc_v2(&p, 1 + (unsigned)rand_r(&seed) % (64 * MIB));
        cuMemAllocAsync(&q, 1 + (unsigned)rand_r(&seed) % (64 * MIB), NULL);
        run(f, NULL);
        cuEventRecord(e, NULL);
        if (rand_r(&seed) % 4 == 0)
            cuCtxSynchronize();
        if (p)
            cuMemFree_v2(p);
        if (q)
            cuMemFreeAsync(q, NULL);
    }
}

static void killed_processes_leave_the_machine_usable(int rounds)
{
    fresh_machine("memory_mib=4096 context_mib=64");
    enum { AT_ONCE = 4 };
    pid_t running[AT_ONCE] = {0};
    unsigned seed = 7;
    for (int round = 0; round < rounds; round++) {
        int i = round % AT_ONCE;
        if (running[i]) {
            usleep((useconds_t)rand_r(&seed) % 3000);
            kill(running[i], SIGKILL);
            waitpid(running[i], NULL, 0);
        }
        running[i] = child();
        if (running[i] == 0)
            victim((unsigned)round + 1);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        kill(running[i], SIGKILL);
        waitpid(running[i], NULL, 0);
    }
    struct machine_state *m = pumice_machine_state();
    pumice_machine_reap(NULL);
    EQUAL(m->card[0].lanes[0].used_bytes, 0);
    if (child() == 0) {
        begin(0);
        CUdeviceptr p;
        EQUAL(free_now(), (4096 - 64) * MIB);
        OK(cuMemAlloc_v2(&p, (4096 - 64) * MIB));
        OK(cuMemFree_v2(p));
        OK(run(kernel("pumice-kernel name=k ns=1000\n", "k"), NULL));
        OK(cuCtxSynchronize());
        exit(0);
    }
    children_end(1);
    drop_machine();
}

static void a_forked_child_has_no_driver(void)
{
    fresh_machine("");
    begin(0);
    if (child() == 0) {
        CUdeviceptr p;
        EQUAL(cuMemAlloc_v2(&p, 4), 3);
        EQUAL(cuInit(0), 3);
        exit(0);
    }
    children_end(1);
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 4)); /* and the parent keeps its own */
    drop_machine();
}

static void *hold_on(void *arg)
{
    int *pipes = arg;
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1);
    exit(0);
}

static void a_process_whose_first_thread_is_gone_is_alive(void)
{
    fresh_machine("");
    static int held[2], quit[2]; /* not on the stack that the first thread takes with it */
    char byte;
    CHECK(pipe(held) == 0 && pipe(quit) == 0);
    if (child() == 0) {
        CUdeviceptr p;
        pthread_t thread;
        begin(0);
        OK(cuMemAlloc_v2(&p, 100 * MIB));
        CHECK(pthread_create(&thread, NULL, hold_on, quit) == 0);
        CHECK(write(held[1], "h", 1) == 1);
        pthread_exit(NULL);
    }
    CHECK(read(held[0], &byte, 1) == 1);
    usleep(20000);
    EQUAL(pumice_machine_reap(NULL), 0);
    CHECK(pumice_machine_state()->card[0].lanes[0].used_bytes >= 100 * MIB);
    CHECK(write(quit[1], "q", 1) == 1);
    children_end(1);
    pumice_machine_reap(NULL);
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    drop_machine();
}

static int kill_rounds = 200;

static void kills(void)
{
    killed_processes_leave_the_machine_usable(kill_rounds);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        kill_rounds = atoi(argv[1]);
        apart(kills);
        return 0;
    }
    apart(the_last_byte_can_be_had_and_no_more);
    apart(managed_memory_gives_way_to_what_has_to_lie_on_the_card);
    apart(a_large_block_costs_nothing_and_keeps_its_bytes);
    apart(filling_and_copying_a_large_block_touches_little);
    apart(a_hundred_thousand_live_blocks_are_no_burden);
    apart(garbage_gets_the_drivers_answer);
    apart(sixty_four_processes_lose_no_update);
    apart(kills);
    apart(a_forked_child_has_no_driver);
    apart(a_process_whose_first_thread_is_gone_is_alive);
    return 0;
}
