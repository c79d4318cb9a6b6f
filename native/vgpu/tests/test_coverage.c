/* The union of intervals that come in any order. */
#include "check.h"
#include "policy/overlap.h"

#include <stdbool.h>

static uint64_t dice = 88172645463325252ull;

static uint64_t below(uint64_t most)
{
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice % most;
}

static void a_moment_is_counted_once(void)
{
    struct coverage coverage = {0};
    CHECK_EQUAL(coverage_add(&coverage, 100, 200), 100);
    CHECK_EQUAL(coverage_add(&coverage, 100, 200), 0);
    CHECK_EQUAL(coverage_add(&coverage, 150, 250), 50);
    CHECK_EQUAL(coverage_add(&coverage, 300, 400), 100);
    CHECK_EQUAL(coverage_add(&coverage, 50, 500), 200); /* what began first and ended last: the gaps */
    CHECK_EQUAL(coverage_add(&coverage, 60, 490), 0);
    CHECK_EQUAL(coverage_add(&coverage, 500, 510), 10);
    CHECK_EQUAL(coverage.count, 1);
    CHECK_EQUAL(coverage_add(&coverage, 600, 600), 0);
    CHECK_EQUAL(coverage_add(&coverage, 600, 590), 0);
}

/* Against a map of moments: intervals of up to eight streams, each answered somewhat later than it ended. */
static void the_answers_add_up_to_the_union(void)
{
    enum { MOMENTS = 20000 };
    static bool busy[MOMENTS + 300];
    struct coverage coverage = {0};
    uint64_t sum = 0, wanted = 0;
    for (uint64_t at = 300; at < MOMENTS; at += below(60)) {
        uint64_t from = at - below(300), until = from + 1 + below(200);
        sum += coverage_add(&coverage, from, until);
        for (uint64_t moment = from; moment < until; moment++)
            busy[moment] = true;
    }
    for (uint64_t moment = 0; moment < MOMENTS + 300; moment++)
        wanted += busy[moment];
    CHECK_EQUAL(sum, wanted);
}

/* More stretches than are kept apart: of the oldest only the sum is known, and a kernel that lasted through all pays the rest. */
static void what_is_long_past_is_still_counted_once(void)
{
    struct coverage coverage = {0};
    uint64_t sum = 0, stretches = 10 * COVERAGE_SPANS;
    for (uint64_t i = 0; i < stretches; i++)
        sum += coverage_add(&coverage, 1000 * i, 1000 * i + 300);
    CHECK_EQUAL(sum, 300 * stretches);
    CHECK(coverage.count <= COVERAGE_SPANS);
    sum += coverage_add(&coverage, 0, 1000 * stretches);
    CHECK_EQUAL(sum, 1000 * stretches);
    CHECK_EQUAL(coverage.count, 1);
}

int main(void)
{
    a_moment_is_counted_once();
    the_answers_add_up_to_the_union();
    what_is_long_past_is_still_counted_once();
    return check_result("coverage");
}
