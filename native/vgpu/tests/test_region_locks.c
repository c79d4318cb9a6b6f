/* The region's locks: taken from the dead at once, never from the living, and every wait is counted. */
#include "check.h"
#include "core/attach.h"
#include "core/slots.h"
#include "core/region_lock.h"
#include "policy/memory.h"
#include "regions.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static struct config config;
#define LIMIT 1000ull

static uint32_t *region_lock_of(struct region_map *map)
{
    return &map->ext->memory_locks[0];
}

static bool take(struct region_map *map)
{
    struct wait wait = {0, 0};
    return region_lock_take(map, region_lock_of(map), &wait);
}

static void *take_in_thread(void *map)
{
    return take(map) ? map : NULL;
}

/* A process of which a thread takes the turn, and that is there until it is killed. */
static pid_t owner(bool thread_takes)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map map;
        pthread_t thread;
        void *taken = &map;
        region_attach(&map, &config);
        if (thread_takes && pthread_create(&thread, NULL, take_in_thread, &map) == 0)
            pthread_join(thread, &taken);
        else if (!take(&map))
            taken = NULL;
        if (write(ends[1], taken != NULL ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    hear_yes(ends[0]);
    return pid;
}

static void the_turn_of_the_dead_is_over_at_once(void)
{
    struct region_map map;
    region_attach(&map, &config);
    for (int round = 0; round < 50; round++) {
        pid_t pid = owner(round % 2 == 1);
        kill(pid, SIGKILL);
        siginfo_t info;
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* a zombie, and nobody has swept */
        CHECK(take(&map));
        region_lock_give(region_lock_of(&map));
        waitpid(pid, NULL, 0);
        CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT + 1) == REFUSED); /* sweeps */
    }
    CHECK_EQUAL(map.ext->waits.late, 0);
    region_forget(&map);
}

static void the_turn_of_the_living_is_waited_for_until_the_bound_and_the_wait_is_counted(void)
{
    struct region_map map;
    region_attach(&map, &config);
    struct ext_waits before = map.ext->waits;
    pid_t pid = owner(false);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT) == GRANTED); /* the fast path needs nobody's turn */
    memory_release(&map, 0, MEMORY_DATA, LIMIT);
    map.ext->slots[map.slot].pending[0].fast = LIMIT; /* another thread asks for everything, and never gets to know */
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED);
    map.ext->slots[map.slot].pending[0].fast = 0;
    CHECK_EQUAL(map.ext->waits.late, before.late + 1);
    map.ext->slots[map.slot].pending[0].slow = LIMIT;
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED);
    map.ext->slots[map.slot].pending[0].slow = 0;
    CHECK_EQUAL(map.ext->waits.late, before.late + 2);
    CHECK(map.ext->waits.longest_ns >= LOCK_WAIT_MAX_NS);
    CHECK(map.ext->waits.total_ns - before.total_ns >= 2 * LOCK_WAIT_MAX_NS);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT) == GRANTED);
    region_forget(&map);
}

static void a_word_that_names_nobody_is_nobodys_turn(void)
{
    struct region_map map;
    region_attach(&map, &config);
    static const uint32_t damage[] = {0xffff, 0x1ffff, 1025, 1024, 0xdead0002, 0x10000, 0x80000000};
    uint64_t late = map.ext->waits.late;
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        *region_lock_of(&map) = damage[i];
        CHECK(take(&map));
        region_lock_give(region_lock_of(&map));
        CHECK_EQUAL(*region_lock_of(&map), 0);
    }
    CHECK_EQUAL(map.ext->waits.late, late);
    region_forget(&map);
}

static void *ask_until_cancelled(void *map)
{
    for (;;) {
        memory_reserve(map, 0, MEMORY_DATA, 1);
        pthread_testcancel();
    }
    return NULL;
}

static void a_thread_that_is_cancelled_while_it_waits_leaves_nothing_behind(void)
{
    struct region_map map;
    pthread_t thread;
    region_attach(&map, &config);
    struct ext_pending *pending = &map.ext->slots[map.slot].pending[0];
    pending->fast = LIMIT; /* another one asks for everything, and never gets to know */
    pthread_create(&thread, NULL, ask_until_cancelled, &map);
    while (shared_get(&pending->slow) == 0)
        ;
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    CHECK_EQUAL(pending->slow, 0);
    CHECK_EQUAL(pending->fast, LIMIT);
    CHECK_EQUAL(*region_lock_of(&map), 0);
    pending->fast = 0;
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT) == GRANTED);
    region_forget(&map);
}

/* One of 64 processes each, all at the limit of their container, and hardly one gives up. */
static void a_crowd_decides_in_time(void)
{
    enum { CROWD = 64, ROUNDS = 200 };
    pid_t pids[CROWD];
    unlink(config.region_path);
    for (int i = 0; i < CROWD; i++)
        if ((pids[i] = fork()) == 0) {
            struct region_map map;
            unsigned seed = (unsigned)i;
            region_attach(&map, &config);
            for (int round = 0; map.shared && round < ROUNDS; round++) {
                uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % LIMIT;
                if (memory_reserve(&map, 0, MEMORY_DATA, bytes) == GRANTED)
                    memory_release(&map, 0, MEMORY_DATA, bytes);
            }
            _exit(map.shared ? 0 : 1);
        }
    for (int i = 0; i < CROWD; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        CHECK_EQUAL(status, 0);
    }
    struct region_map map;
    region_attach(&map, &config);
#ifndef __SANITIZE_THREAD__
    CHECK(map.ext->waits.late <= CROWD * ROUNDS / 10000); /* a machine at its limits may keep one from the processor at its worst moment */
#endif
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, LIMIT) == GRANTED);
    printf("     %llu waits of 64 processes, the longest %llu us\n", (unsigned long long)map.ext->waits.count,
           (unsigned long long)map.ext->waits.longest_ns / 1000);
    region_forget(&map);
}

int main(void)
{
    if (!directory_made())
        return 1;
    config = config_for("r.cache", LIMIT);
    the_turn_of_the_dead_is_over_at_once();
    the_turn_of_the_living_is_waited_for_until_the_bound_and_the_wait_is_counted();
    a_word_that_names_nobody_is_nobodys_turn();
    a_thread_that_is_cancelled_while_it_waits_leaves_nothing_behind();
    a_crowd_decides_in_time();
    return check_result("turns") | !directory_removed();
}
