/* Streams side by side: what a launch adds to the busy time, and which launches go together. */
#include "check.h"
#include "policy/overlap.h"

#include <stdbool.h>

#define MS 1000000ull

static const uint64_t A = 0x10, B = 0x20, C = 0x30;

static struct overlap fresh(void)
{
    struct overlap overlap;
    memset(&overlap, 0, sizeof overlap);
    return overlap;
}

static void one_opens_and_the_others_go_with_it(void)
{
    struct overlap overlap = fresh();
    struct overlap_place place;
    uint64_t wait = 0, t = 1000 * MS;
    CHECK_EQUAL(overlap_ask(&overlap, A, t, 5 * MS, &place, &wait), OVERLAP_LEAD);
    overlap_expect(&overlap, t + 7 * MS);
    CHECK_EQUAL(overlap_ask(&overlap, B, t, 5 * MS, &place, &wait), OVERLAP_WAIT);
    CHECK_EQUAL(wait, 7 * MS);
    t += 7 * MS;
    overlap_open(&overlap, A, t, 5 * MS, &place);
    CHECK_EQUAL(place.extension, 5 * MS);
    CHECK_EQUAL(overlap_ask(&overlap, B, t, 5 * MS, &place, &wait), OVERLAP_GO);
    CHECK_EQUAL(place.extension, 0);
    CHECK_EQUAL(overlap_ask(&overlap, C, t + MS, 6 * MS, &place, &wait), OVERLAP_GO);
    CHECK_EQUAL(place.extension, 2 * MS); /* only what goes beyond the others */
    CHECK_EQUAL(overlap_ask(&overlap, A, t + MS, 5 * MS, &place, &wait), OVERLAP_LEAD); /* it would begin after the slice */
}

static void short_kernels_fill_a_slice(void)
{
    struct overlap overlap = fresh();
    struct overlap_place place;
    uint64_t wait, t = 1000 * MS, sum = 0;
    int launches = 1;
    CHECK_EQUAL(overlap_ask(&overlap, A, t, MS / 10, &place, &wait), OVERLAP_LEAD);
    overlap_open(&overlap, A, t, MS / 10, &place);
    sum += (uint64_t)place.extension;
    while (overlap_ask(&overlap, launches % 2 ? B : A, t, MS / 10, &place, &wait) == OVERLAP_GO) {
        sum += (uint64_t)place.extension;
        launches++;
    }
    CHECK(launches >= 39 && launches <= 41); /* two streams of 2 ms */
    CHECK_EQUAL(sum, OVERLAP_SLICE_NS);
}

static void what_was_longer_is_paid_and_what_was_shorter_given_back(void)
{
    struct overlap overlap = fresh();
    struct overlap_place a, b;
    uint64_t wait, t = 1000 * MS;
    overlap_ask(&overlap, A, t, 5 * MS, &a, &wait);
    overlap_open(&overlap, A, t, 5 * MS, &a);
    overlap_ask(&overlap, B, t, 5 * MS, &b, &wait);
    CHECK_EQUAL(overlap_measured(&overlap, &a, 5 * MS, t + 5 * MS), 0);
    CHECK_EQUAL(overlap_measured(&overlap, &b, 10 * MS, t + 10 * MS), 5 * MS); /* it waited for the first: the card was full */

    struct overlap alone = fresh();
    overlap_ask(&alone, A, t, 5 * MS, &a, &wait);
    overlap_open(&alone, A, t, 5 * MS, &a);
    CHECK_EQUAL(overlap_measured(&alone, &a, 3 * MS, t + 3 * MS), -2 * (long)MS);
}

static void kernels_that_are_all_measured_are_charged_exactly_what_they_cover(void)
{
    struct overlap overlap = fresh();
    struct overlap_place place;
    uint64_t wait, t = 1000 * MS;
    int64_t charged = 0;
    /* Taken to last 3 ms, four streams in turn on a card that does one after the other, 1 ms each: answers come in any order. */
    struct overlap_place places[16];
    for (uint64_t i = 0; i < 16; i++) {
        uint64_t now = t + i / 4 * 40 * MS, stream = A + i % 4;
        if (overlap_ask(&overlap, stream, now, 3 * MS, &place, &wait) == OVERLAP_LEAD)
            overlap_open(&overlap, stream, now, 3 * MS, &place);
        place.all_measured = true;
        places[i] = place;
        charged += place.extension;
    }
    for (uint64_t i = 0; i < 16; i++) {
        uint64_t at = i * 5 % 16, begun = t + at / 4 * 40 * MS; /* each begins when it is launched and waits for those before */
        charged += overlap_measured(&overlap, &places[at], (at % 4 + 1) * MS, begun + (at % 4 + 1) * MS);
    }
    CHECK_EQUAL(charged, 16 * MS);
}

static void work_that_ends_in_a_pause_is_paid_later(void)
{
    struct overlap overlap = fresh();
    struct overlap_place a, b, later;
    uint64_t wait, t = 1000 * MS;
    overlap_ask(&overlap, A, t, 2 * MS, &a, &wait);
    overlap_open(&overlap, A, t, 2 * MS, &a);
    overlap_ask(&overlap, B, t, 2 * MS, &b, &wait);
    overlap_ask(&overlap, A, t + 20 * MS, 2 * MS, &later, &wait);
    overlap_open(&overlap, A, t + 20 * MS, 2 * MS, &later);
    CHECK_EQUAL(overlap_measured(&overlap, &b, 4 * MS, t + 4 * MS), 2 * MS); /* known only after the next slice began */
}

static void a_leader_that_is_gone_holds_nobody_up_for_ever(void)
{
    struct overlap overlap = fresh();
    struct overlap_place place;
    uint64_t wait, t = 1000 * MS;
    CHECK_EQUAL(overlap_ask(&overlap, A, t, MS, &place, &wait), OVERLAP_LEAD);
    CHECK_EQUAL(overlap_ask(&overlap, B, t + 500 * MS, MS, &place, &wait), OVERLAP_WAIT);
    CHECK_EQUAL(overlap_ask(&overlap, B, t + 1001 * MS, MS, &place, &wait), OVERLAP_LEAD);
    overlap_give_up(&overlap);
    CHECK_EQUAL(overlap_ask(&overlap, C, t + 1001 * MS, MS, &place, &wait), OVERLAP_LEAD);
}

static void one_stream_is_not_several(void)
{
    struct overlap overlap = fresh();
    uint64_t t = 1000 * MS;
    for (int i = 0; i < 100; i++)
        CHECK(!overlap_several(&overlap, A, t + (uint64_t)i * MS));
    CHECK(overlap_several(&overlap, B, t + 100 * MS));
    CHECK(overlap_several(&overlap, B, t + 299 * MS));
    CHECK(!overlap_several(&overlap, B, t + 301 * MS)); /* it kept to one */
}

int main(void)
{
    one_opens_and_the_others_go_with_it();
    short_kernels_fill_a_slice();
    what_was_longer_is_paid_and_what_was_shorter_given_back();
    kernels_that_are_all_measured_are_charged_exactly_what_they_cover();
    work_that_ends_in_a_pause_is_paid_later();
    a_leader_that_is_gone_holds_nobody_up_for_ever();
    one_stream_is_not_several();
    return check_result("overlap");
}
