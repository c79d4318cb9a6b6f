/* The ledger of record locks: what a process holds there no other can take, its own death gives back, and shared allocations count once. */
#include "core/attach.h"
#include "core/shared_allocations.h"
#include "core/ledger.h"
#include "core/republish.h"
#include "policy/memory.h"
#include "regions.h"

#include <signal.h>
#include <sys/wait.h>

#define MIB (1ull << 20)
#define LIMIT (100 * MIB)

static struct limits_page page = {.count = 1, .cards = {{"GPU-1", LIMIT, 0}}};

static struct region_map attached(const char *name)
{
    struct region_map map;
    struct config config = config_for(name, 0);
    config.page = &page;
    region_attach(&map, &config);
    CHECK(map.shared && map.ledger != NULL);
    return map;
}

static bool takes(struct region_map *map, uint64_t bytes)
{
    return memory_reserve(map, 0, MEMORY_DATA, bytes) == GRANTED;
}

/* Two attachments of one process are two open files, and so two processes to the kernel. */
static void what_one_holds_is_not_there_for_another_to_the_byte(void)
{
    struct region_map one = attached("a"), two = attached("a");
    CHECK(takes(&one, 60 * MIB));
    CHECK(!takes(&two, 40 * MIB + 1));
    CHECK(takes(&two, 40 * MIB));
    CHECK(memory_used(&one, 0) == LIMIT && memory_used(&two, 0) == LIMIT);
    memory_release(&one, 0, MEMORY_DATA, 60 * MIB);
    CHECK(memory_used(&two, 0) == 40 * MIB);
    CHECK(takes(&two, 60 * MIB) && !takes(&one, 1));
    region_forget(&two);
    CHECK(memory_used(&one, 0) == 0);
    region_forget(&one);
}

static void whatever_is_written_takes_nothing_out_of_the_sum(void)
{
    struct region_map one = attached("b"), two = attached("b");
    CHECK(takes(&one, 90 * MIB));
    memset(one.region, 0, one.mapped_bytes);
    CHECK(!takes(&two, 10 * MIB + 1) && takes(&two, 10 * MIB));
    memset(one.region, 0xff, one.mapped_bytes);
    CHECK(memory_used(&two, 0) == LIMIT);
    struct region_map three = attached("b");
    CHECK(!takes(&three, 1));
    slot_republish(&one);
    CHECK(one.region->procs[one.slot].used[0].total == 90 * MIB && one.region->procs[one.slot].pid == getpid());
    region_forget(&three);
    region_forget(&two);
    region_forget(&one);
}

static void the_dead_hold_nothing_and_who_is_stopped_does(void)
{
    struct region_map map = attached("c");
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct region_map own = attached("c");
        CHECK(takes(&own, LIMIT) && write(ends[1], "y", 1) == 1);
        for (;;)
            pause();
    }
    hear_yes(ends[0]);
    kill(child, SIGSTOP);
    CHECK(!takes(&map, 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(takes(&map, LIMIT));
    region_forget(&map);
}

static void a_closed_descriptor_takes_nothing_out_of_the_sum(void)
{
    struct region_map one = attached("d"), two = attached("d");
    CHECK(takes(&one, 70 * MIB));
    close(one.fd);
    CHECK(!takes(&two, 31 * MIB));
    CHECK(takes(&one, 20 * MIB) && !takes(&one, 11 * MIB));
    memory_release(&one, 0, MEMORY_DATA, 20 * MIB);
    CHECK(memory_used(&two, 0) == 70 * MIB);
    region_forget(&two);
    region_forget(&one);
}

static uint64_t name_of(const void *sought)
{
    return *(const uint64_t *)sought;
}

static void a_shared_counts_once_until_the_last_lets_go(void)
{
    struct region_map one = attached("e"), two = attached("e");
    struct shared_allocation what;
    uint64_t name = 77ull << 40;
    CHECK(takes(&one, 30 * MIB));
    uint32_t made = shared_allocation_new(&one, 0, 30 * MIB, 0x100, name);
    CHECK(made != 0);
    memory_release(&one, 0, MEMORY_DATA, 30 * MIB);
    CHECK(memory_used(&two, 0) == 30 * MIB);
    uint32_t joined = shared_allocation_join(&two, &(struct shared_allocation_search){NULL, name_of, &name}, &what);
    CHECK(joined != 0 && what.bytes == 30 * MIB && what.device == 0);
    CHECK(memory_used(&one, 0) == 30 * MIB && memory_used(&two, 0) == 30 * MIB);
    CHECK(!shared_allocation_leave(&one, made, &what));
    CHECK(memory_used(&one, 0) == 30 * MIB && memory_used(&two, 0) == 30 * MIB);
    CHECK(ledger_shared_paid(&two, 0) == 30 * MIB);
    shared_allocation_leave(&two, joined, &what);
    CHECK(memory_used(&one, 0) == 0);
    CHECK(shared_allocation_join(&two, &(struct shared_allocation_search){NULL, name_of, &name}, &what) == 0);
    region_forget(&two);
    region_forget(&one);
}

int main(void)
{
    CHECK(directory_made());
    what_one_holds_is_not_there_for_another_to_the_byte();
    whatever_is_written_takes_nothing_out_of_the_sum();
    the_dead_hold_nothing_and_who_is_stopped_does();
    a_closed_descriptor_takes_nothing_out_of_the_sum();
    a_shared_counts_once_until_the_last_lets_go();
    return check_result("ledger") | !directory_removed();
}
