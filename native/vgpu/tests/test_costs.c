/* The costs of launches: measuring, learning, and that the sum charged is the sum measured. */
#include "check.h"
#include "core/after_fork.h"
#include "policy/budget.h"
#include "policy/cost.h"

#include <math.h>
#include <stdbool.h>

#define MS 1000000ull

static const struct cost_others NOBODY;
static uint64_t time_ns = 5000 * MS;

static uint64_t learned(struct cost *cost, uint64_t duration, uint32_t sharers)
{
    return cost_learn(cost, duration, sharers, NOBODY).own_ns;
}

static bool sampled(struct cost *cost)
{
    struct cost_others others;
    return cost_wants_sample(cost, SHAPE_KERNEL, time_ns, cost_estimate(cost), &others);
}

static void costs_are_learned_from_clean_samples(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 132, 256, 0));
    CHECK(cost == cost_of(cost_key(&time_ns, 132, 256, 0)));
    CHECK(cost != cost_of(cost_key(&time_ns, 132, 512, 0)));
    CHECK_EQUAL(cost_estimate(cost), COST_UNKNOWN_NS);
    CHECK_EQUAL(learned(cost, 20 * MS, 2), 20 * MS); /* beside another: too long, but never too short */
    CHECK_EQUAL(learned(cost, 14 * MS, 2), 14 * MS);
    CHECK_EQUAL(learned(cost, 30 * MS, 3), 14 * MS); /* it may have waited for two */
    CHECK_EQUAL(learned(cost, 10 * MS, 1), 10 * MS); /* alone: that is the truth */
    CHECK_EQUAL(cost_estimate(cost), 10 * MS);
    CHECK(!cost_known_alone(cost)); /* one of it is no proof */
    CHECK_EQUAL(learned(cost, 23 * MS, 2), 10 * MS);
    CHECK_EQUAL(cost_estimate(cost), 10 * MS);
    CHECK_EQUAL(learned(cost, 12 * MS, 1), 12 * MS); /* this one really was longer */
    CHECK_EQUAL(cost_estimate(cost), 11 * MS);
}

/* Two ways to see without a quiet moment that all are of one length: many are, or none waits longer than for a turn of the other. */
static void a_length_is_known_from_contended_samples_where_waiting_explains_the_rest(void)
{
    struct cost *brief = cost_of(cost_key(&time_ns, 132, 260, 0)), *lengthy = cost_of(cost_key(&time_ns, 132, 262, 0));
    for (int i = 0; i < 32; i++)
        learned(brief, i % 8 == 0 ? 2200000 : 200000, 2);
    CHECK_EQUAL(learned(brief, 2200000, 2), 200000);
    CHECK_EQUAL(cost_estimate(brief), 200000);
    for (int i = 0; i < 100; i++)
        learned(brief, 1300000, 2); /* launched one by one, each waits: that says nothing else */
    CHECK_EQUAL(learned(brief, 1300000, 2), 200000);
    CHECK(!cost_is_unsure(brief));
    learned(brief, 150000, 2);
    CHECK(cost_is_unsure(brief)); /* not the length of them all, then */
    learned(lengthy, 9 * MS, 2), learned(lengthy, 5 * MS, 2);
    CHECK_EQUAL(learned(lengthy, 9 * MS, 2), 5 * MS);
    CHECK_EQUAL(learned(lengthy, 22 * MS, 2), 22 * MS); /* more than three turns: this is not one length */
    CHECK_EQUAL(learned(lengthy, 9 * MS, 2), 9 * MS);
}

/* Its share of the device while others have theirs is more than it was known to take: it has become longer, alone or not. */
static void what_grows_beside_others_is_noticed(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 132, 257, 0));
    for (int i = 0; i < 8; i++)
        learned(cost, 10 * MS, 1);
    CHECK_EQUAL(learned(cost, 200 * MS, 2), 98 * MS); /* half of it, but for one slice of the other */
    for (int i = 0; i < 40; i++)
        learned(cost, 200 * MS, 2);
    CHECK(cost_estimate(cost) > 90 * MS && cost_estimate(cost) <= 98 * MS);
}

static void kernels_of_one_length_that_meet_others_are_never_billed_for_their_slices(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 132, 258, 0));
    for (int i = 0; i < 3; i++)
        learned(cost, 5 * MS, 1);
    for (int i = 0; i < 100; i++)
        CHECK_EQUAL(learned(cost, 5 * MS + (uint64_t)i % 4 * 2 * MS, 2), 5 * MS);
    CHECK_EQUAL(cost_estimate(cost), 5 * MS);
}

/* The shortest of them, or the mean of those that were over before anybody else came, would be less than they take. */
static void lengths_that_vary_are_charged_in_full_beside_others(void)
{
    struct cost *known = cost_of(cost_key(&time_ns, 132, 259, 0)), *unknown = cost_of(cost_key(&time_ns, 132, 261, 0));
    for (uint64_t i = 0; i < 50; i++)
        learned(known, (1 + i % 7) * 100000, 1);
    for (uint64_t i = 0; i < 700; i++) {
        uint64_t length = (1 + i % 7) * 100000 + (i % 3 == 0) * MS;
        CHECK_EQUAL(learned(known, length, 2), length);
        CHECK(i < 8 || learned(unknown, length, 2) == length);
    }
}

static void the_first_launches_are_measured_and_then_one_in_thirty_two(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 7, 7, 7));
    int measured = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(sampled(cost));
        learned(cost, 1000, 1);
    }
    for (int i = 0; i < 3200; i++)
        measured += sampled(cost);
    CHECK_EQUAL(measured, 100);
    time_ns += 11 * MS;
    CHECK(sampled(cost)); /* and one in 10 ms */
}

static void one_that_is_measured_speaks_for_those_that_were_not(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 8, 8, 8));
    struct cost_others others = NOBODY;
    for (int i = 0; i < 3; i++)
        sampled(cost), learned(cost, 20000, 1);
    for (int i = 0; i < 9; i++)
        CHECK(!sampled(cost));
    time_ns += 11 * MS;
    CHECK(cost_wants_sample(cost, SHAPE_KERNEL, time_ns, cost_estimate(cost), &others));
    CHECK_EQUAL(others.launches, 9);
    CHECK_EQUAL(others.charged_ns, 9 * 20000);
    CHECK_EQUAL(cost_learn(cost, 24000, 1, others).others_ns, 9 * 4000);
    CHECK_EQUAL(cost_learn(cost, 15000, 1, others).others_ns, -9 * 5000);
    struct cost_verdict stalled = cost_learn(cost, 60000 * MS, 1, NOBODY); /* a debugger, a suspended card */
    CHECK_EQUAL(stalled.own_ns, 60000 * MS);
}

static void one_that_took_very_much_longer_says_so_of_itself_only(void)
{
    struct cost *cost = cost_of(cost_key(&time_ns, 9, 9, 9));
    struct cost_others others = {.launches = 127, .charged_ns = 127 * 10000};
    for (int i = 0; i < 64; i++)
        learned(cost, 10000, 1);
    struct cost_verdict verdict = cost_learn(cost, 500000, 1, others);
    CHECK_EQUAL(verdict.own_ns, 500000);
    CHECK(verdict.others_ns > 0 && verdict.others_ns < 127 * 17 * 20000l);
}

/* Log-normal lengths about this median: one in a hundred is ten times as long. */
static uint64_t drawn(uint64_t median)
{
    static uint64_t dice = 88172645463325252ull;
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        sum += (double)(dice >> 11) / 9007199254740992.0;
    }
    return (uint64_t)((double)median * exp(sum - 6));
}

/* One tenant with endless work of such lengths, each answer read when it is there: percent of the device that it gets. */
static double share_of_varied(uint64_t percent, uint64_t median, uint64_t span)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    forget_in_child();
    struct cost *cost = cost_of(cost_key(&device, 1, 1, 1));
    uint64_t busy = 0, begun = time_ns, measured = 0, launched = 0, free_at = time_ns;
    for (; time_ns < begun + span; launched++) {
        uint64_t estimate = cost_estimate(cost), wait;
        struct cost_others others = NOBODY;
        int64_t ticket = budget_charge(&device, (int64_t)estimate);
        for (budget_refill(&device, percent, time_ns); !budget_allows(&device, ticket); budget_refill(&device, percent, time_ns)) {
            wait = budget_wait_ns(&device, percent, ticket);
            time_ns += wait > 0 ? wait : 1;
        }
        uint64_t length = drawn(median);
        free_at = (free_at > time_ns ? free_at : time_ns) + length;
        busy += length;
        if (!cost_wants_sample(cost, SHAPE_KERNEL, time_ns, estimate, &others))
            continue;
        struct cost_verdict verdict = cost_learn(cost, length, 1, others);
        budget_correct(&device, (int64_t)verdict.own_ns - (int64_t)estimate + verdict.others_ns);
        measured++;
    }
    CHECK(measured * COST_LONG_NS <= 2 * busy + 100 * COST_LONG_NS); /* no more than a pair of events per 50 us of work */
    return 100.0 * (double)busy / (double)(time_ns - begun);
}

/* Charged by the mean of the last few samples, one per 10 ms, this tenant had up to an eighth more than its limit for ever. */
static void lengths_that_vary_get_the_limit_all_the_same(void)
{
    static const uint64_t limits[] = {10, 30, 50, 70, 90}, medians[] = {10000, 50000, 200000, 2000000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        for (size_t j = 0; j < sizeof medians / sizeof *medians; j++) {
            double share = share_of_varied(limits[i], medians[j], 20000 * MS);
            if (fabs(share - (double)limits[i]) > 1.0)
                fprintf(stderr, "limit %lu, median %lu ns: %.2f\n", (unsigned long)limits[i], (unsigned long)medians[j], share);
            CHECK(fabs(share - (double)limits[i]) <= 1.0);
        }
    }
    forget_in_child();
}

static void grids_of_about_one_size_share_a_key(void)
{
    CHECK(cost_key(&time_ns, 1000, 1, 0) == cost_key(&time_ns, 1010, 1, 0));
    CHECK(cost_key(&time_ns, 1000, 1, 0) != cost_key(&time_ns, 1500, 1, 0));
    CHECK(cost_key(&time_ns, 3, 1, 0) != cost_key(&time_ns, 4, 1, 0));
    CHECK(cost_key(&time_ns, 1ull << 62, 1, 0) != cost_key(&time_ns, 1ull << 32, 1, 0)); /* products beyond 32 bits */
}

static void more_kernels_than_the_table_holds_are_no_trouble(void)
{
    for (uintptr_t i = 1; i < 100000; i++) {
        struct cost *cost = cost_of(cost_key((void *)(i * 64), 1, 1, 0));
        learned(cost, i, 1);
        CHECK(cost_estimate(cost) > 0);
    }
    forget_in_child();
}

int main(void)
{
    costs_are_learned_from_clean_samples();
    a_length_is_known_from_contended_samples_where_waiting_explains_the_rest();
    what_grows_beside_others_is_noticed();
    kernels_of_one_length_that_meet_others_are_never_billed_for_their_slices();
    lengths_that_vary_are_charged_in_full_beside_others();
    the_first_launches_are_measured_and_then_one_in_thirty_two();
    one_that_is_measured_speaks_for_those_that_were_not();
    one_that_took_very_much_longer_says_so_of_itself_only();
    lengths_that_vary_get_the_limit_all_the_same();
    grids_of_about_one_size_share_a_key();
    more_kernels_than_the_table_holds_are_no_trouble();
    return check_result("costs");
}
