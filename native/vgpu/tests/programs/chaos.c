/*
 * chaos MILLISECONDS PROCESSES [ROUNDS]: processes that allocate and free at the limit, killed at random moments and started
 * again, for so long and until there were so many rounds.
 *
 * Afterwards the region must hold exactly what the living hold, every lock must be free, and a last process must get the
 * whole limit. Prints [rounds, longest wait for a lock in ns, waits, of them given up], by the library's own counters. The parent
 * uses no GPU.
 */
#include "check.h"
#include "vgpu/region.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELD = 64 };

static int (*init)(unsigned);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*allocate)(unsigned long long *, size_t);
static int (*release)(unsigned long long);
static int (*info)(size_t *, size_t *);

static void open_gpu(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (cuda == NULL)
        _exit(2);
    init = (int (*)(unsigned))dlsym(cuda, "cuInit");
    retain = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    set_current = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    allocate = (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    release = (int (*)(unsigned long long))dlsym(cuda, "cuMemFree_v2");
    info = (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
    if (init(0) != 0)
        _exit(3);
    int rc;
    while ((rc = retain(&context, 0)) == 2) { /* the others hold all there is, now and then */
        struct timespec moment = {0, 200000};
        nanosleep(&moment, NULL);
    }
    if (rc != 0 || set_current(context) != 0)
        _exit(3);
}

static void hammer(unsigned seed)
{
    unsigned long long held[HELD] = {0};
    open_gpu();
    for (;;) {
        unsigned at = (unsigned)rand_r(&seed) % HELD;
        if (held[at] != 0)
            release(held[at]);
        held[at] = 0;
        /* Large enough that a few blocks reach the limit and the slow path decides. */
        if (allocate(&held[at], 1 + (size_t)rand_r(&seed) % (200u << 20)) != 0)
            held[at] = 0;
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static pid_t begin(unsigned seed)
{
    pid_t pid = fork();
    if (pid == 0)
        hammer(seed);
    return pid;
}

/* Any byte of the file that is still locked by somebody. */
static bool locked(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

/* A process that comes after everything: it gets all that its context leaves. */
static int last_one(void)
{
    size_t available, total;
    unsigned long long block;
    open_gpu();
    if (info(&available, &total) != 0 || allocate(&block, available + 1) != 2)
        return 4;
    return allocate(&block, available) == 0 && available + (600u << 20) > total ? 0 : 5;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "last") == 0)
        return last_one();
    uint64_t until = now_ms() + (argc > 1 ? strtoull(argv[1], NULL, 10) : 1000);
    int count = argc > 2 ? atoi(argv[2]) : 4;
    unsigned seed = 7, rounds = 0, wanted = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
    pid_t players[64];
    for (int i = 0; i < count; i++)
        players[i] = begin(seed++);
    int fd = -1;
    const struct region *region = NULL;
    while (now_ms() < until || rounds < wanted) {
        struct timespec moment = {0, (long)((unsigned)rand_r(&seed) % 12000000u)};
        nanosleep(&moment, NULL);
        int victim = (int)((unsigned)rand_r(&seed) % (unsigned)count);
        kill(players[victim], SIGKILL);
        waitpid(players[victim], NULL, 0);
        players[victim] = begin(seed += 13);
        rounds++;
        if (fd < 0 && (fd = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR | O_CLOEXEC)) >= 0)
            region = mmap(NULL, REGION_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    }
    for (int i = 0; i < count; i++) {
        kill(players[i], SIGKILL);
        waitpid(players[i], NULL, 0);
    }
    if (locked(fd)) {
        fprintf(stderr, "a lock was left\n");
        return 6;
    }
    pid_t last = fork();
    if (last == 0)
        execl("/proc/self/exe", argv[0], "last", (char *)NULL);
    int status;
    waitpid(last, &status, 0);
    for (int slot = 0; slot < REGION_SLOTS; slot++)
        if (region->procs[slot].pid != 0 || region->procs[slot].used[0].total != 0) {
            fprintf(stderr, "slot %d is left\n", slot);
            return 7;
        }
    const struct ext_waits *waits = &((const struct region_ext *)((const char *)region + REGION_EXT_OFFSET))->waits;
    printf("[%u, %lu, %lu, %lu]\n", rounds, (unsigned long)waits->longest_ns, (unsigned long)waits->count, (unsigned long)waits->late);
    return status == 0 ? 0 : 8;
}
