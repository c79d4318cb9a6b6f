/* Memory that several processes hold: who pays for it, when one lets go, and when one dies. */
#include "check.h"
#include "core/after_fork.h"
#include "core/attach.h"
#include "core/shared_allocations.h"
#include "core/slots.h"
#include "core/region_lock.h"
#include "policy/memory.h"
#include "regions.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static bool any(const struct shared_allocation *shared_allocation, const void *sought)
{
    return shared_allocation->words == *(const uint64_t *)sought;
}

static uint32_t join(struct region_map *map, uint64_t words)
{
    struct shared_allocation what;
    return shared_allocation_join(map, &(struct shared_allocation_search){any, NULL, &words}, &what);
}

static uint64_t paid_by(const struct region_map *map)
{
    return map->region->procs[map->slot].used[0].total;
}

/* Two maps of one file are as good as two processes: each has a slot. */
static void the_first_that_still_holds_it_pays(void)
{
    struct config config = config_for("joint.cache", 1000);
    struct region_map a, b;
    struct shared_allocation what;
    region_attach(&a, &config);
    region_attach(&b, &config);
    CHECK(memory_reserve(&a, 0, MEMORY_DATA, 700) == GRANTED);
    uint32_t shared_allocation = shared_allocation_new(&a, 0, 700, 0, 5);
    CHECK(shared_allocation == 1 && join(&b, 6) == 0 && join(&b, 5) == shared_allocation && join(&b, 5) == shared_allocation);
    CHECK(paid_by(&a) == 700 && paid_by(&b) == 0);
    CHECK(shared_allocation_leave(&a, shared_allocation, &what) && what.bytes == 700);
    CHECK_EQUAL(paid_by(&b), 700); /* before who paid gives back */
    memory_release(&a, 0, MEMORY_DATA, what.bytes);
    CHECK(join(&a, 5) == shared_allocation && !shared_allocation_leave(&a, shared_allocation, &what));
    CHECK(memory_reserve(&a, 0, MEMORY_DATA, 400) == REFUSED);
    CHECK(shared_allocation_leave(&b, shared_allocation, &what));
    CHECK_EQUAL(join(&a, 5), 0);
    region_forget(&b);
    region_forget(&a);
}

static void who_dies_leaves_it_to_the_next(void)
{
    struct config config = config_for("heir.cache", 1000);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map map;
        region_attach(&map, &config);
        char done = memory_reserve(&map, 0, MEMORY_DATA, 700) == GRANTED && shared_allocation_new(&map, 0, 700, 0, 5) == 1 ? 'y' : 'n';
        if (write(ends[1], &done, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    hear_yes(ends[0]);
    struct region_map map;
    region_attach(&map, &config);
    CHECK_EQUAL(join(&map, 5), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 301) == REFUSED);
    CHECK(paid_by(&map) == 700 && memory_used(&map, 0) == 700);
    CHECK(memory_reserve(&map, 0, MEMORY_DATA, 300) == GRANTED);
    region_forget(&map);
}

/* What was passed on and is in no table would be free as soon as one lets go. */
static void who_has_the_turn_for_long_is_waited_for(void)
{
    struct config config = config_for("slow.cache", 1000);
    struct region_map map;
    int ends[2];
    CHECK(pipe(ends) == 0);
    region_attach(&map, &config);
    CHECK_EQUAL(shared_allocation_new(&map, 0, 700, 0, 5), 1);
    pid_t pid = fork();
    if (pid == 0) {
        struct region_map slow;
        struct wait wait = {0, 0};
        forget_in_child();
        region_attach(&slow, &config);
        char done = region_lock_take(&slow, &slow.shared_allocations->lock, &wait) ? 'y' : 'n';
        if (write(ends[1], &done, 1) != 1)
            _exit(1);
        usleep(300000);
        region_lock_give(&slow.shared_allocations->lock);
        for (;;)
            pause();
    }
    close(ends[1]);
    hear_yes(ends[0]);
    CHECK_EQUAL(join(&map, 5), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    region_forget(&map);
}

static void a_full_list_says_so(void)
{
    struct config config = config_for("full.cache", 1000);
    struct region_map maps[SHARED_ALLOCATION_HOLDERS + 1], alone;
    for (int i = 0; i <= SHARED_ALLOCATION_HOLDERS; i++)
        region_attach(&maps[i], &config);
    CHECK_EQUAL(shared_allocation_new(&maps[0], 0, 1, 0, 5), 1);
    for (int i = 1; i <= SHARED_ALLOCATION_HOLDERS; i++)
        CHECK_EQUAL(join(&maps[i], 5), i < SHARED_ALLOCATION_HOLDERS ? 1 : 0);
    for (uint32_t i = 2; i <= SHARED_ALLOCATIONS; i++)
        CHECK_EQUAL(shared_allocation_new(&maps[0], 0, 1, 0, 6), i);
    CHECK_EQUAL(shared_allocation_new(&maps[0], 0, 1, 0, 6), 0);
    for (int i = SHARED_ALLOCATION_HOLDERS; i >= 0; i--)
        region_forget(&maps[i]);
    snprintf(config.region_path, sizeof config.region_path, "/proc/no/such.cache");
    region_attach(&alone, &config);
    CHECK(shared_allocation_new(&alone, 0, 1, 0, 5) == 0 && join(&alone, 5) == 0);
    region_forget(&alone);
}

static void a_region_of_an_earlier_version_grows_under_who_is_there(void)
{
    struct config config = config_for("grown.cache", 1000);
    struct region_map earlier, later;
    struct stat status;
    region_attach(&earlier, &config);
    CHECK(truncate(earlier.path, (off_t)REGION_FILE_BYTES) == 0);
    earlier.shared_allocations = NULL; /* it knows none */
    CHECK(memory_reserve(&earlier, 0, MEMORY_DATA, 600) == GRANTED);
    region_attach(&later, &config);
    CHECK(stat(later.path, &status) == 0 && status.st_size == (off_t)REGION_WHOLE_BYTES);
    CHECK(later.slot == 1 && memory_used(&later, 0) == 600);
    CHECK_EQUAL(shared_allocation_new(&later, 0, 1, 0, 5), 1);
    region_forget(&later);
    region_forget(&earlier);
}

int main(void)
{
    if (!directory_made())
        return 1;
    the_first_that_still_holds_it_pays();
    who_dies_leaves_it_to_the_next();
    who_has_the_turn_for_long_is_waited_for();
    a_full_list_says_so();
    a_region_of_an_earlier_version_grows_under_who_is_there();
    return check_result("joints") | !directory_removed();
}
