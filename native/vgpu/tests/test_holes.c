/* What is known to be free in a pool is never more than is free. */
#include "book/holes.h"
#include "check.h"

static void a_block_that_left_is_a_hole_of_its_size(void)
{
    struct holes holes = {0};
    CHECK(!holes_fit(&holes, 1));
    holes_add(&holes, 4096, 1024);
    CHECK(holes_fit(&holes, 1024));
    CHECK(!holes_fit(&holes, 1025));
}

static void what_is_taken_from_the_front_leaves_the_rest(void)
{
    struct holes holes = {0};
    holes_add(&holes, 4096, 1024);
    holes_take(&holes, 4096, 512);
    CHECK(holes_fit(&holes, 512));
    CHECK(!holes_fit(&holes, 513));
    holes_take(&holes, 4096 + 512, 512);
    CHECK(!holes_fit(&holes, 1));
}

static void what_lies_elsewhere_stays(void)
{
    struct holes holes = {0};
    holes_add(&holes, 4096, 1024);
    holes_take(&holes, 0, 4096);
    holes_take(&holes, 5120, 4096);
    CHECK(holes_fit(&holes, 1024));
}

static void the_longest_are_remembered(void)
{
    struct holes holes = {0};
    for (uint64_t i = 1; i <= 2 * HOLES; i++)
        holes_add(&holes, i << 20, i * 512);
    CHECK(holes_fit(&holes, 2 * HOLES * 512));
    holes_add(&holes, 1, 512);
    CHECK(holes.hole[0].bytes > 512);
    holes_forget(&holes);
    CHECK(!holes_fit(&holes, 1));
}

int main(void)
{
    a_block_that_left_is_a_hole_of_its_size();
    what_is_taken_from_the_front_leaves_the_rest();
    what_lies_elsewhere_stays();
    the_longest_are_remembered();
    return check_result("holes");
}
