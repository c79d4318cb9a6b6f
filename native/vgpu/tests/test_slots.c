/* Slots of living and dead processes: who holds what, who gives back, and what is left of who ended. */
#include "check.h"
#include "core/lock.h"
#include "core/attach.h"
#include "core/slots.h"
#include "policy/memory.h"
#include "regions.h"
#include "vgpu/region_legacy.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child_holding(const struct config *config, uint64_t bytes, int *ready)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map map;
        region_attach(&map, config);
        char done = memory_reserve(&map, 0, MEMORY_DATA, bytes) == GRANTED ? 'y' : 'n';
        if (write(ends[1], &done, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    *ready = ends[0];
    return pid;
}

static void the_dead_give_back_at_the_next_request(void)
{
    struct config config = config_for("dead.cache", 1000);
    int ready;
    pid_t pid = child_holding(&config, 1000, &ready);
    hear_yes(ready);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED);
    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* it stays a zombie: its pid still answers */
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED);
    CHECK_EQUAL(map.region->procs[0].pid, 0);
    CHECK_EQUAL(memory_used(&map, 0), 1000);
    waitpid(pid, NULL, 0);
    region_forget(&map);
}

/* Pid and start time stay, but the program that held the memory is no more, and what comes after it need not use the GPU at all. */
static void an_exec_gives_back_what_the_program_before_held(void)
{
    struct config config = config_for("exec.cache", 1000);
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map map;
        region_attach(&map, &config);
        if (memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED && dup2(to[0], 0) == 0 && dup2(from[1], 1) == 1)
            execlp("cat", "cat", (char *)NULL);
        _exit(1);
    }
    char echo = 0;
    CHECK(write(to[1], "x", 1) == 1 && read(from[0], &echo, 1) == 1 && echo == 'x'); /* the other program runs */
    struct region_map map;
    region_attach(&map, &config);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED);
    CHECK(waitpid(pid, NULL, WNOHANG) == 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    region_forget(&map);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
}

static void a_closed_descriptor_does_not_make_us_dead(void)
{
    struct config config = config_for("closed.cache", 1000);
    struct region_map first;
    region_attach(&first, &config);
    CHECK(memory_reserve(&first, 0, MEMORY_DATA, 600) == GRANTED);
    close(first.fd); /* what a program does that closes all descriptors before it becomes a daemon */
    int taken = open("/dev/null", O_RDWR);
    CHECK(dup2(taken, first.fd) == first.fd);

    int ready;
    pid_t other = child_holding(&config, 401, &ready);
    char answer = 0;
    CHECK(read(ready, &answer, 1) == 1 && answer == 'n');
    CHECK_EQUAL(first.region->procs[0].pid, getpid());
    CHECK(memory_reserve(&first, 0, MEMORY_DATA, 401) == REFUSED); /* looks for its descriptor, and locks its slot again */
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)LOCK_ALIVE(0), .l_len = 1};
    int looking = open(first.path, O_RDWR);
    CHECK(fcntl(looking, F_OFD_GETLK, &range) == 0 && range.l_type == F_WRLCK);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(looking);
    close(ready);
    close(taken);
    region_forget(&first);
}

/* A child that attaches, gets so many bytes, leaves, may write on, and is there until it is killed. */
static pid_t child_leaving(const struct config *config, uint64_t bytes, uint64_t residue)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map map;
        region_attach(&map, config);
        bool granted = memory_reserve(&map, 0, MEMORY_DATA, bytes) == GRANTED;
        slot_leave(&map);
        map.region->procs[map.slot].used[0].total += residue; /* a thread that was in the middle of booking */
        bool refused = memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED; /* it ends, and gets no more */
        if (write(ends[1], granted && refused ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    hear_yes(ends[0]);
    return pid;
}

static void who_ends_is_gone_for_monitors_at_once_and_for_the_limit_when_the_driver_has_all_back(void)
{
    struct config config = config_for("leaving.cache", 1000);
    pid_t pid = child_leaving(&config, 600, 0);
    struct region_map map;
    struct region_slot zero;
    memset(&zero, 0, sizeof zero);
    region_attach(&map, &config);
    CHECK_EQUAL(map.slot, 1); /* nobody takes the place of who still ends */
    CHECK(memcmp(&map.region->procs[0], &zero, sizeof zero) == 0);
    CHECK_EQUAL(memory_used(&map, 0), 600);
    CHECK_EQUAL(memory_used_shown(&map, 0), 600);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 401) == REFUSED);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED);
    CHECK(slot_is_free(&map, 0));
    region_forget(&map);
}

static void what_a_leaving_process_still_wrote_is_swept(void)
{
    struct config config = config_for("residue.cache", 1000);
    struct region_map map;
    region_attach(&map, &config);
    pid_t pid = child_leaving(&config, 100, 700);
    CHECK_EQUAL(memory_used(&map, 0), 800);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED);
    CHECK_EQUAL(map.region->procs[1].used[0].total, 0);
    CHECK_EQUAL(map.region->proc_num, 1);
    region_forget(&map);
}

/* Killed between the two halves of emptying a slot: neither an owner nor free, and the next look ends it. */
static void a_slot_that_was_emptied_by_half_is_emptied(void)
{
    struct config config = config_for("half.cache", 1000);
    struct region_map map;
    region_attach(&map, &config);
    map.ext->slots[5].flags = EXT_SLOT_LEAVING | EXT_SLOT_ALIVE_LOCK;
    map.ext->slots[5].pending[0].fast = 400;
    map.region->proc_num = 6;
    CHECK_EQUAL(memory_used(&map, 0), 400);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1000) == GRANTED);
    CHECK(slot_is_free(&map, 5));
    CHECK_EQUAL(map.region->proc_num, 1);
    region_forget(&map);
}

static void empty(struct region_map *map)
{
    slot_clear(map, map->slot); /* as the sweep of whoever comes next does */
    region_forget(map);
}

static void slots_are_reused_lowest_first_and_never_move(void)
{
    struct config config = config_for("slots.cache", 0);
    struct region_map maps[4];
    for (int i = 0; i < 4; i++)
        region_attach(&maps[i], &config);
    CHECK_EQUAL(maps[3].slot, 3);
    empty(&maps[1]);
    CHECK_EQUAL(maps[0].region->proc_num, 4);
    region_attach(&maps[1], &config);
    CHECK_EQUAL(maps[1].slot, 1);
    CHECK_EQUAL(maps[3].region->procs[3].pid, getpid());
    for (int i = 3; i >= 0; i--)
        empty(&maps[i]);
}

static void the_thousand_and_twenty_fifth_process_is_limited_alone(void)
{
    struct config config = config_for("full.cache", 1000);
    struct region_map map, late;
    region_attach(&map, &config);
    for (int i = 1; i < REGION_SLOTS; i++)
        map.region->procs[i].pid = 1; /* it lives for ever */
    region_attach(&late, &config);
    CHECK(!late.shared && late.slot == 0 && memory_limit(&late, 0) == 1000);
    region_forget(&late);
    region_forget(&map);
}

static void books_never_go_below_zero(void)
{
    struct config config = config_for("below.cache", 1000);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 10) == GRANTED);
    memory_release(&map, 0, MEMORY_DATA, 11);
    CHECK_EQUAL(memory_used(&map, 0), 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, UINT64_MAX) == REFUSED);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1ull << 63) == REFUSED);
    CHECK_EQUAL(memory_used(&map, 0), 0);
    region_forget(&map);
}

static void the_file_of_another_library_is_shared_without_the_extension(void)
{
    struct region *theirs = calloc(1, sizeof *theirs + 1);
    theirs->initialized_flag = REGION_MAGIC;
    theirs->major_version = 1;
    theirs->minor_version = 2;
    theirs->limit[0] = 1000;
    write_file("theirs.cache", theirs, sizeof *theirs + 1, sizeof *theirs + 1);
    struct config config = config_for("theirs.cache", 0);
    int ready;
    pid_t other = child_holding(&config, 600, &ready);
    hear_yes(ready);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(map.shared && !map.ext_shared && map.slot == 1);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 401) == REFUSED);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 400) == GRANTED);
    struct stat status;
    CHECK(stat(map.path, &status) == 0 && status.st_size == (off_t)REGION_V1_BYTES + 1);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 600) == GRANTED);
    region_forget(&map);
    free(theirs);
}

int main(void)
{
    if (!directory_made())
        return 1;
    the_dead_give_back_at_the_next_request();
    an_exec_gives_back_what_the_program_before_held();
    a_closed_descriptor_does_not_make_us_dead();
    who_ends_is_gone_for_monitors_at_once_and_for_the_limit_when_the_driver_has_all_back();
    what_a_leaving_process_still_wrote_is_swept();
    a_slot_that_was_emptied_by_half_is_emptied();
    slots_are_reused_lowest_first_and_never_move();
    the_thousand_and_twenty_fifth_process_is_limited_alone();
    books_never_go_below_zero();
    the_file_of_another_library_is_shared_without_the_extension();
    return check_result("slots") | !directory_removed();
}
