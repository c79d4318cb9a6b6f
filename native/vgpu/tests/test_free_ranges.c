/* The free ranges known of a pool are never more than is free. */
#include "book/free_ranges.h"
#include "check.h"

static void a_block_that_left_is_a_free_range_of_its_size(void)
{
    struct free_ranges free_ranges = {0};
    CHECK(!free_ranges_fit(&free_ranges, 1));
    free_ranges_add(&free_ranges, 4096, 1024);
    CHECK(free_ranges_fit(&free_ranges, 1024));
    CHECK(!free_ranges_fit(&free_ranges, 1025));
}

static void what_is_taken_from_the_front_leaves_the_rest(void)
{
    struct free_ranges free_ranges = {0};
    free_ranges_add(&free_ranges, 4096, 1024);
    free_ranges_take(&free_ranges, 4096, 512);
    CHECK(free_ranges_fit(&free_ranges, 512));
    CHECK(!free_ranges_fit(&free_ranges, 513));
    free_ranges_take(&free_ranges, 4096 + 512, 512);
    CHECK(!free_ranges_fit(&free_ranges, 1));
}

static void what_lies_elsewhere_stays(void)
{
    struct free_ranges free_ranges = {0};
    free_ranges_add(&free_ranges, 4096, 1024);
    free_ranges_take(&free_ranges, 0, 4096);
    free_ranges_take(&free_ranges, 5120, 4096);
    CHECK(free_ranges_fit(&free_ranges, 1024));
}

static void the_longest_are_remembered(void)
{
    struct free_ranges free_ranges = {0};
    for (uint64_t i = 1; i <= 2 * FREE_RANGES; i++)
        free_ranges_add(&free_ranges, i << 20, i * 512);
    CHECK(free_ranges_fit(&free_ranges, 2 * FREE_RANGES * 512));
    free_ranges_add(&free_ranges, 1, 512);
    CHECK(free_ranges.ranges[0].bytes > 512);
    free_ranges_forget(&free_ranges);
    CHECK(!free_ranges_fit(&free_ranges, 1));
}

int main(void)
{
    a_block_that_left_is_a_free_range_of_its_size();
    what_is_taken_from_the_front_leaves_the_rest();
    what_lies_elsewhere_stays();
    the_longest_are_remembered();
    return check_result("free ranges");
}
