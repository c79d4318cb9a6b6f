/*
 * The reservation protocol under fire: processes and threads that book and give back at random, watched by a witness of
 * their own. Never a byte above the limit, never a refusal of what fits, and nothing left at the end.
 *
 * VGPU_GRANTS sets how many grants are made (default 30,000; the benchmark runs ten million), VGPU_LARGEST the largest block.
 */
#include "check.h"
#include "core/attach.h"
#include "core/slots.h"
#include "core/waits.h"
#include "policy/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 6, THREADS = 4, HELD = 16 };
#define LIMIT (256ull << 20) /* one thread alone meets it */

/* What is really held, counted apart from the books; in memory that all processes share. */
struct witness {
    uint64_t held, highest, grants, refusals, over, ready;
};

static struct witness *witness;
static struct config config;
static uint64_t wanted_grants = 30000, largest = 48u << 20;

static void take(uint64_t bytes)
{
    uint64_t now = __atomic_add_fetch(&witness->held, bytes, __ATOMIC_SEQ_CST), highest;
    if (now > LIMIT)
        __atomic_add_fetch(&witness->over, 1, __ATOMIC_SEQ_CST);
    highest = __atomic_load_n(&witness->highest, __ATOMIC_SEQ_CST);
    while (highest < now &&
           !__atomic_compare_exchange_n(&witness->highest, &highest, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static void give(struct region_map *map, uint64_t *held)
{
    /* The memory goes before its booking, as with the driver. */
    __atomic_sub_fetch(&witness->held, *held, __ATOMIC_SEQ_CST);
    memory_release(map, 0, MEMORY_DATA, *held);
    *held = 0;
}

struct player {
    struct region_map *map;
    unsigned seed;
};

static void *play(void *data)
{
    struct player *player = data;
    uint64_t held[HELD] = {0};
    __atomic_add_fetch(&witness->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&witness->ready, __ATOMIC_SEQ_CST) < PROCESSES * THREADS)
        usleep(100); /* all at once, or the first would be done before the last begins */
    while (__atomic_load_n(&witness->grants, __ATOMIC_RELAXED) < wanted_grants) {
        int at = rand_r(&player->seed) % HELD;
        if (held[at] != 0)
            give(player->map, &held[at]);
        uint64_t bytes = 1 + (uint64_t)rand_r(&player->seed) % largest;
        if (memory_reserve(player->map, 0, MEMORY_DATA, bytes) == GRANTED) {
            take(bytes);
            held[at] = bytes;
            __atomic_add_fetch(&witness->grants, 1, __ATOMIC_RELAXED);
        } else {
            __atomic_add_fetch(&witness->refusals, 1, __ATOMIC_RELAXED);
        }
    }
    for (int i = 0; i < HELD; i++)
        if (held[i] != 0)
            give(player->map, &held[i]);
    return NULL;
}

static int process(unsigned seed)
{
    struct region_map map;
    struct player players[THREADS];
    pthread_t threads[THREADS];
    region_attach(&map, &config);
    for (int i = 0; i < THREADS; i++) {
        players[i] = (struct player){&map, seed * 31 + (unsigned)i};
        pthread_create(&threads[i], NULL, play, &players[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int left = memory_used(&map, 0) > LIMIT || map.region->procs[map.slot].used[0].total != 0;
    slot_leave(&map);
    return left;
}

static void many_hands_never_exceed_the_limit(void)
{
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        if ((pids[i] = fork()) == 0)
            _exit(process((unsigned)i + 1));
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        CHECK_EQUAL(status, 0);
    }
    CHECK_EQUAL(witness->over, 0);
    CHECK_EQUAL(witness->held, 0);
    CHECK(witness->highest <= LIMIT);
    CHECK(witness->grants >= wanted_grants);
    CHECK(witness->refusals > 0); /* else the limit was never met */
    struct region_map map;
    region_attach(&map, &config);
    const struct ext_waits waited = map.ext->waits;
#ifndef __SANITIZE_THREAD__ /* it makes a hundredfold of the moment for which a request is undecided */
    CHECK(waited.late <= (witness->grants + witness->refusals) / 10000); /* who gives up is refused what may fit */
#endif
    CHECK_EQUAL(memory_used(&map, 0), 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT) == GRANTED);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED);
    CHECK_EQUAL(map.region->proc_num, 1);
    region_forget(&map);
    printf("     %llu grants, %llu refusals, at most %llu of %llu bytes; %llu waits, the longest %llu us\n",
           (unsigned long long)witness->grants, (unsigned long long)witness->refusals, (unsigned long long)witness->highest,
           (unsigned long long)LIMIT, (unsigned long long)waited.count, (unsigned long long)waited.longest_ns / 1000);
}

/* Two that do not both fit: exactly one of them is granted, every time. */
struct racer {
    struct region_map *map;
    pthread_barrier_t *barrier;
    int granted, rounds;
};

static void *race(void *data)
{
    struct racer *racer = data;
    for (int i = 0; i < racer->rounds; i++) {
        pthread_barrier_wait(racer->barrier);
        bool mine = memory_reserve(racer->map, 0, MEMORY_DATA, LIMIT / 2 + 1) == GRANTED;
        racer->granted += mine;
        pthread_barrier_wait(racer->barrier);
        if (mine)
            memory_release(racer->map, 0, MEMORY_DATA, LIMIT / 2 + 1);
        pthread_barrier_wait(racer->barrier);
    }
    return NULL;
}

static void of_two_that_do_not_both_fit_exactly_one_is_granted(void)
{
    enum { ROUNDS = 2000 };
    struct region_map map;
    pthread_barrier_t barrier;
    pthread_t threads[2];
    region_attach(&map, &config);
    pthread_barrier_init(&barrier, NULL, 2);
    struct racer racers[2] = {{&map, &barrier, 0, ROUNDS}, {&map, &barrier, 0, ROUNDS}};
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, race, &racers[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(racers[0].granted + racers[1].granted, ROUNDS);
    region_forget(&map);
}

int main(void)
{
    char path[] = "/tmp/vgpu-test-XXXXXX";
    if (mkdtemp(path) == NULL)
        return 1;
    snprintf(config.region_path, sizeof config.region_path, "%s/r.cache", path);
    for (int i = 0; i < REGION_DEVICES; i++)
        config.memory_limit[i] = LIMIT;
    if (getenv("VGPU_GRANTS") != NULL)
        wanted_grants = strtoull(getenv("VGPU_GRANTS"), NULL, 10);
    if (getenv("VGPU_LARGEST") != NULL)
        largest = strtoull(getenv("VGPU_LARGEST"), NULL, 10);
    witness = mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    many_hands_never_exceed_the_limit();
    of_two_that_do_not_both_fit_exactly_one_is_granted();
    unlink(config.region_path);
    rmdir(path);
    return check_result("memory");
}
