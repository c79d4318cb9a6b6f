/* Creating, joining, losing and repairing the shared region; slots of living and dead processes. */
#include "check.h"
#include "core/lock.h"
#include "core/region_map.h"
#include "core/slots.h"
#include "policy/memory.h"
#include "vgpu/region_legacy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/vgpu-test-XXXXXX";

static struct config config_for(const char *name, uint64_t limit)
{
    struct config config;
    memset(&config, 0, sizeof config);
    snprintf(config.region_path, sizeof config.region_path, "%s/%s", directory, name);
    for (int i = 0; i < REGION_DEVICES; i++) {
        config.memory_limit[i] = limit;
        config.sm_limit[i] = 100;
    }
    config.any_memory_variable = limit != 0;
    config.priority = 1;
    return config;
}

static void write_file(const char *name, const void *bytes, size_t count, off_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && pwrite(fd, bytes, count, 0) == (ssize_t)count && ftruncate(fd, size) == 0);
    close(fd);
}

static void a_new_region_is_what_a_monitor_expects(void)
{
    struct config config = config_for("new.cache", 1000);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(map.shared && map.ext_shared);
    struct stat status;
    CHECK(stat(map.path, &status) == 0 && status.st_size == (off_t)REGION_FILE_BYTES);
    CHECK_EQUAL(status.st_mode & 0777, 0666);
    CHECK_EQUAL(map.region->initialized_flag, REGION_MAGIC);
    CHECK_EQUAL(map.region->major_version, 1);
    CHECK_EQUAL(map.region->minor_version, 2);
    CHECK_EQUAL(map.region->utilization_switch, 1);
    CHECK_EQUAL(map.region->recent_kernel, 2);
    CHECK_EQUAL(map.region->proc_num, 1);
    CHECK_EQUAL(map.region->procs[0].pid, getpid());
    CHECK_EQUAL(map.region->procs[0].status, SLOT_RUNNING);
    CHECK_EQUAL(map.region->limit[3], 1000);
    CHECK(map.region->sem[0] == 1 && map.region->sem[8] == 0x80 && map.region->sem_postinit[0] == 1);
    slot_leave(&map);
    struct region_slot zero;
    memset(&zero, 0, sizeof zero);
    CHECK(memcmp(&map.region->procs[0], &zero, sizeof zero) == 0);
    region_forget(&map);
}

static void the_first_limits_hold(void)
{
    struct config first = config_for("first.cache", 1000), second = config_for("first.cache", 9000);
    struct region_map a, b;
    region_attach(&a, &first);
    region_attach(&b, &second);
    CHECK_EQUAL(memory_limit(&b, 0), 1000);
    CHECK_EQUAL(b.slot, 1);
    region_forget(&a);
    region_forget(&b);
}

static void what_is_no_region_is_left_alone(void)
{
    char text[] = "somebody's thesis";
    write_file("thesis", text, sizeof text, sizeof text);
    struct config config = config_for("thesis", 500);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(!map.shared && map.region != NULL);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 500) == GRANTED);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 1) == REFUSED);
    region_forget(&map);
    char back[sizeof text] = "", path[256];
    snprintf(path, sizeof path, "%s/thesis", directory);
    int fd = open(path, O_RDONLY);
    CHECK(read(fd, back, sizeof back) == (ssize_t)sizeof back && strcmp(back, text) == 0);
    close(fd);
}

static void a_symbolic_link_is_not_followed(void)
{
    char target[256], link[256];
    snprintf(target, sizeof target, "%s/target", directory);
    snprintf(link, sizeof link, "%s/link.cache", directory);
    CHECK(symlink(target, link) == 0);
    struct config config = config_for("link.cache", 500);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(!map.shared && memory_limit(&map, 0) == 500);
    CHECK(access(target, F_OK) != 0 && errno == ENOENT);
    region_forget(&map);
}

static void a_missing_directory_costs_only_sharing(void)
{
    struct config config = config_for("no/such/place.cache", 500);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(!map.shared && map.slot == 0 && memory_limit(&map, 0) == 500);
    region_forget(&map);
}

/* Every head that lies: the process is limited all the same, by its environment or by what the file kept. */
static void damaged_heads_never_lose_the_limit(void)
{
    static const struct {
        uint32_t head[3];
        off_t size;
        int shared;
    } rows[] = {
        {{0, 0, 0}, 0, 1},
        {{0xdeadbeef, 1, 2}, REGION_FILE_BYTES, 1},      /* the magic is gone: formatted anew */
        {{0xdeadbeef, 1, 2}, REGION_V1_BYTES + 1, 1},
        {{0xdeadbeef, 1, 2}, 77777, 0},                  /* no region has that size */
        {{REGION_MAGIC, 1, 2}, 100, 1},                  /* cut short, nobody lives in it */
        {{REGION_MAGIC, 1, 2}, REGION_V1_BYTES + 1, 1},  /* another library's: shared, without our extension */
        {{REGION_MAGIC, 1, 1}, REGION_V1_BYTES + 1, 1},
        {{REGION_MAGIC, 1, 9}, REGION_FILE_BYTES, 1},
        {{REGION_MAGIC, 77, 2}, REGION_FILE_BYTES, 1},
        {{REGION_MAGIC, 1, 1}, REGION_V1_BAD_B_BYTES + 1, 1},
        {{REGION_MAGIC, 0, 0}, REGION_V0_BYTES + 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_file("damaged.cache", rows[i].head, sizeof rows[i].head, rows[i].size);
        struct config config = config_for("damaged.cache", 500);
        struct region_map map;
        region_attach(&map, &config);
        if (map.shared != rows[i].shared)
            fprintf(stderr, "row %zu\n", i);
        CHECK_EQUAL(map.shared, rows[i].shared);
        /* A valid upstream file's limits come before the environment's: here it says unlimited. */
        uint64_t wanted = rows[i].head[0] == REGION_MAGIC && rows[i].head[2] == 2 && rows[i].head[1] == 1 && rows[i].size > 100
                              ? 0
                              : 500;
        CHECK_EQUAL(memory_limit(&map, 0), wanted);
        if (wanted != 0)
            CHECK(memory_reserve(&map, 0, MEMORY_DATA, 501) == REFUSED);
        region_forget(&map);
        char path[256];
        snprintf(path, sizeof path, "%s/damaged.cache", directory);
        unlink(path);
    }
}

static void an_old_layout_with_a_living_process_is_not_touched(void)
{
    struct v0_region *old = calloc(1, sizeof *old + 1);
    old->initialized_flag = REGION_MAGIC;
    old->limit[0] = 700;
    old->procs[3].pid = getpid();
    write_file("old.cache", old, sizeof *old + 1, sizeof *old + 1);
    struct config config = config_for("old.cache", 0);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(!map.shared);
    CHECK_EQUAL(memory_limit(&map, 0), 700);
    region_forget(&map);

    old->procs[3].pid = 0x7ffffff0;
    write_file("old.cache", old, sizeof *old + 1, sizeof *old + 1);
    region_attach(&map, &config);
    CHECK(map.shared && map.ext_shared);
    CHECK_EQUAL(memory_limit(&map, 0), 700);
    CHECK_EQUAL(map.region->minor_version, 2);
    region_forget(&map);
    free(old);
}

static void lost_magic_does_not_forget_the_living(void)
{
    struct config config = config_for("scribbled.cache", 1000);
    struct region_map first, second;
    region_attach(&first, &config);
    CHECK(memory_reserve(&first, 0, MEMORY_DATA, 900) == GRANTED);
    first.region->initialized_flag = 12345;
    region_attach(&second, &config);
    CHECK(second.shared && second.slot == 1);
    CHECK_EQUAL(memory_used(&second, 0), 900);
    CHECK(memory_reserve(&second, 0, MEMORY_DATA, 101) == REFUSED);
    CHECK(memory_reserve(&second, 0, MEMORY_DATA, 100) == GRANTED);
    region_forget(&second);
    region_forget(&first);
}

static void a_mark_that_lies_hides_nobody(void)
{
    struct config config = config_for("mark.cache", 1000);
    struct region_map first, second;
    region_attach(&first, &config);
    CHECK(memory_reserve(&first, 0, MEMORY_DATA, 900) == GRANTED);
    first.region->proc_num = 0;
    region_attach(&second, &config);
    CHECK(memory_reserve(&second, 0, MEMORY_DATA, 101) == REFUSED);
    first.region->proc_num = -7;
    CHECK_EQUAL(memory_used(&second, 0), 900);
    region_forget(&second);
    region_forget(&first);
}

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
    char answer = 0;
    CHECK(read(ready, &answer, 1) == 1 && answer == 'y');
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
    close(ready);
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
    char answer = 0;
    close(ends[1]);
    CHECK(read(ends[0], &answer, 1) == 1 && answer == 'y');
    close(ends[0]);
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
    char answer = 0;
    CHECK(read(ready, &answer, 1) == 1 && answer == 'y');
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
    close(ready);
    region_forget(&map);
    free(theirs);
}

int main(void)
{
    if (mkdtemp(directory) == NULL)
        return 1;
    a_new_region_is_what_a_monitor_expects();
    the_first_limits_hold();
    what_is_no_region_is_left_alone();
    a_symbolic_link_is_not_followed();
    a_missing_directory_costs_only_sharing();
    damaged_heads_never_lose_the_limit();
    an_old_layout_with_a_living_process_is_not_touched();
    lost_magic_does_not_forget_the_living();
    a_mark_that_lies_hides_nobody();
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
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    int rc = system(command);
    return check_result("region") | (rc != 0);
}
