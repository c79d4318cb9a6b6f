/* The choice of the process that has to end when a container holds more than it may. */
#include "check.h"
#include "policy/overuse.h"

#include <stdbool.h>

#define GIB (1ull << 30)
#define S 1000000000ull

static struct region_map new_map(void)
{
    struct region_map map = {.region = calloc(1, sizeof(struct region)), .slot = -1};
    map.region->limit[0] = 10 * GIB;
    map.region->proc_num = 8;
    return map;
}

static void holds(struct region_map *map, int slot, int pid, uint64_t bytes)
{
    map->region->procs[slot].pid = pid;
    map->region->procs[slot].monitorused[0] = bytes;
}

static void a_tenth_above_for_five_seconds_is_what_it_takes(void)
{
    struct region_map map = new_map();
    struct overuse state = {0};
    holds(&map, 0, 100, 6 * GIB);
    holds(&map, 1, 101, 5 * GIB); /* exactly a tenth above */
    for (uint64_t t = 1; t < 20; t++)
        CHECK_EQUAL(overuse_look(&map, 0, t * S, &state), -1);
    holds(&map, 1, 101, 5 * GIB + 1);
    CHECK_EQUAL(overuse_look(&map, 0, 20 * S, &state), -1);
    CHECK_EQUAL(overuse_look(&map, 0, 25 * S - 1, &state), -1);
    CHECK_EQUAL(overuse_look(&map, 0, 25 * S, &state), 0);
    free(map.region);
}

static void a_moment_within_bounds_begins_anew(void)
{
    struct region_map map = new_map();
    struct overuse state = {0};
    holds(&map, 3, 100, 12 * GIB);
    CHECK_EQUAL(overuse_look(&map, 0, 1 * S, &state), -1);
    holds(&map, 3, 100, 9 * GIB);
    CHECK_EQUAL(overuse_look(&map, 0, 4 * S, &state), -1);
    holds(&map, 3, 100, 12 * GIB);
    CHECK_EQUAL(overuse_look(&map, 0, 7 * S, &state), -1);
    CHECK_EQUAL(overuse_look(&map, 0, 12 * S, &state), 3);
    free(map.region);
}

static void the_next_has_its_time_too(void)
{
    struct region_map map = new_map();
    struct overuse state = {0};
    holds(&map, 0, 100, 12 * GIB);
    holds(&map, 1, 101, 13 * GIB);
    overuse_look(&map, 0, 1 * S, &state);
    CHECK_EQUAL(overuse_look(&map, 0, 6 * S, &state), 1);
    holds(&map, 1, 0, 0); /* it is gone */
    CHECK_EQUAL(overuse_look(&map, 0, 7 * S, &state), -1);
    CHECK_EQUAL(overuse_look(&map, 0, 12 * S, &state), 0);
    free(map.region);
}

static void the_first_process_of_a_container_is_never_chosen(void)
{
    struct region_map map = new_map();
    struct overuse state = {0};
    holds(&map, 0, 1, 20 * GIB);
    overuse_look(&map, 0, 1 * S, &state);
    CHECK_EQUAL(overuse_look(&map, 0, 9 * S, &state), -1);
    holds(&map, 2, 50, 1 * GIB);
    overuse_look(&map, 0, 10 * S, &state);
    CHECK_EQUAL(overuse_look(&map, 0, 15 * S, &state), 2);
    free(map.region);
}

static void no_limit_and_absurd_figures_end_nobody_by_mistake(void)
{
    struct region_map map = new_map();
    struct overuse state = {0};
    map.region->limit[0] = 0;
    holds(&map, 0, 100, UINT64_MAX);
    holds(&map, 1, 101, UINT64_MAX);
    overuse_look(&map, 0, 1 * S, &state);
    CHECK_EQUAL(overuse_look(&map, 0, 9 * S, &state), -1);
    map.region->limit[0] = UINT64_MAX; /* the sum does not wrap */
    overuse_look(&map, 0, 10 * S, &state);
    CHECK_EQUAL(overuse_look(&map, 0, 19 * S, &state), -1);
    free(map.region);
}

int main(void)
{
    a_tenth_above_for_five_seconds_is_what_it_takes();
    a_moment_within_bounds_begins_anew();
    the_next_has_its_time_too();
    the_first_process_of_a_container_is_never_chosen();
    no_limit_and_absurd_figures_end_nobody_by_mistake();
    return check_result("overuse");
}
