/* Creating, joining, losing and repairing the shared region. */
#include "check.h"
#include "core/lock.h"
#include "core/attach.h"
#include "core/slots.h"
#include "policy/memory.h"
#include "regions.h"
#include "vgpu/region_legacy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_new_region_is_what_a_monitor_expects(void)
{
    struct config config = config_for("new.cache", 1000);
    struct region_map map;
    region_attach(&map, &config);
    CHECK(map.shared && map.ext_shared);
    struct stat status;
    CHECK(stat(map.path, &status) == 0 && status.st_size == (off_t)REGION_WHOLE_BYTES);
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

int main(void)
{
    if (!directory_made())
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
    return check_result("region") | !directory_removed();
}
