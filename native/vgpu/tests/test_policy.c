/* Budget and arbiter in a time of the test's own. */
#include "check.h"
#include "policy/arbiter.h"
#include "policy/budget.h"
#include "policy/clock.h"

#include <stdbool.h>
#include <unistd.h>

#define MS 1000000ull

static uint64_t time_ns = 5000 * MS;

static uint64_t now(void)
{
    return time_ns;
}

static void pass(uint64_t ns)
{
    time_ns += ns;
}

/* One tenant with endless work of this cost: the share that it gets, in hundredths of a percent. */
static long share_of(uint64_t percent, int64_t cost, uint64_t span)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    uint64_t begin = time_ns, busy = 0;
    while (time_ns - begin < span) {
        budget_refill(&device, percent, time_ns);
        int64_t ticket = budget_charge(&device, cost);
        while (!budget_allows(&device, ticket)) {
            pass(budget_wait_ns(&device, percent, ticket));
            budget_refill(&device, percent, time_ns);
        }
        busy += (uint64_t)cost;
        pass(100); /* the launch itself */
    }
    return (long)(busy * 10000 / (time_ns - begin));
}

static void the_share_is_the_limit(void)
{
    static const uint64_t limits[] = {1, 10, 33, 50, 90, 99};
    static const int64_t costs[] = {10000, 100000, 1000000, 10000000, 50000000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (size_t j = 0; j < sizeof costs / sizeof *costs; j++) {
            long share = share_of(limits[i], costs[j], 60000 * MS), wanted = (long)limits[i] * 100;
            if (labs(share - wanted) > 50)
                fprintf(stderr, "limit %lu, cost %ld: %ld\n", (unsigned long)limits[i], (long)costs[j], share);
            CHECK(labs(share - wanted) <= 50); /* half a point */
        }
}

static void often_looking_does_not_lose_credit(void)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    budget_refill(&device, 30, time_ns);
    budget_charge(&device, 100000000);
    int64_t before = device.credit_ns;
    for (int i = 0; i < 1000000; i++) {
        pass(1); /* less than the time of one nanosecond of credit */
        budget_refill(&device, 30, time_ns);
    }
    CHECK(llabs(device.credit_ns - before - 300000) <= 1000); /* 0.1 point of 30 */
}

static void saved_time_is_bounded(void)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    budget_refill(&device, 50, time_ns);
    pass(10000 * MS);
    budget_refill(&device, 50, time_ns);
    CHECK_EQUAL(device.credit_ns - device.charged_ns, 20 * MS);
    CHECK_EQUAL(budget_cap(10), 4 * MS);
    CHECK_EQUAL(budget_cap(90), 36 * MS);
}

static void a_clock_that_begins_anew_stops_nobody(void)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    budget_refill(&device, 50, 900000 * MS);
    int64_t ticket = budget_charge(&device, 1000);
    budget_refill(&device, 50, 10 * MS); /* the machine was restarted, the file was not */
    budget_refill(&device, 50, 20 * MS);
    CHECK(budget_allows(&device, ticket));
}

static void a_damaged_balance_stops_nobody(void)
{
    static const int64_t damaged[][2] = {{0, INT64_MAX}, {INT64_MIN, INT64_MAX}, {INT64_MAX, 0}, {-7, 1ll << 50}, {INT64_MIN, 0}};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct ext_device device;
        memset(&device, 0, sizeof device);
        device.last_refill_ns = time_ns - 1;
        device.credit_ns = damaged[i][0];
        device.charged_ns = damaged[i][1];
        budget_refill(&device, 50, time_ns);
        int64_t ticket = budget_charge(&device, 1000);
        CHECK(budget_allows(&device, ticket));
    }
}

static void a_refund_leaves_no_ticket_behind(void)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    budget_refill(&device, 10, time_ns);
    budget_charge(&device, 200 * (int64_t)MS);
    int64_t ticket = budget_charge(&device, 1000); /* waits for the first */
    CHECK(!budget_allows(&device, ticket));
    budget_correct(&device, -190 * (int64_t)MS); /* which was in truth 10 ms */
    uint64_t waited = 0;
    while (!budget_allows(&device, ticket) && waited < 1000 * MS) {
        pass(MS);
        waited += MS;
        budget_refill(&device, 10, time_ns);
    }
    CHECK(waited <= 110 * MS);
}

static void the_right_to_probe_is_exclusive_and_lapses(void)
{
    struct ext_device device;
    memset(&device, 0, sizeof device);
    CHECK(budget_probe_begin(&device, time_ns, 100 * MS));
    CHECK(!budget_probe_begin(&device, time_ns + 50 * MS, 100 * MS));
    CHECK(budget_probe_begin(&device, time_ns + 101 * MS, 100 * MS));
    budget_probe_renew(&device, 0);
    CHECK(budget_probe_begin(&device, time_ns + 102 * MS, 100 * MS));
    budget_probe_launched(&device, time_ns + 105 * MS); /* what should be done holds nobody up: its program may not look */
    CHECK(budget_probe_runs(&device, time_ns + 104 * MS) && !budget_probe_runs(&device, time_ns + 106 * MS));
    CHECK(!budget_probe_begin(&device, time_ns + 104 * MS, 100 * MS));
    CHECK(budget_probe_begin(&device, time_ns + 106 * MS, 100 * MS));
}

static void containers_take_turns(void)
{
    char directory[] = "/tmp/vgpu-test-XXXXXX", path[128];
    CHECK(mkdtemp(directory) != NULL);
    struct arbiter a, b, again;
    CHECK(arbiter_open(&a, directory, "GPU-1", 11, time_ns));
    CHECK(arbiter_open(&b, directory, "GPU-1", 22, time_ns));
    CHECK(arbiter_open(&again, directory, "GPU-1", 11, time_ns));
    CHECK(a.own == again.own && a.own != b.own);
    arbiter_publish(&a, time_ns, time_ns, 30, true);
    arbiter_publish(&b, time_ns, time_ns, 50, true);

    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0);
    arbiter_publish(&a, time_ns, time_ns + 5 * MS, 30, true); /* launches 5 ms of work */
    CHECK_EQUAL(arbiter_ask(&b, time_ns, 50), 5 * MS);
    CHECK_EQUAL(arbiter_others(&b, time_ns, time_ns), 1);
    CHECK_EQUAL(arbiter_clear_at(&b, time_ns), time_ns + 5 * MS);
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0); /* its window is 3 ms */
    pass(5 * MS);
    CHECK_EQUAL(arbiter_ask(&b, time_ns, 50), 0); /* nothing is in flight: no need to wait for the window's end */
    arbiter_publish(&b, time_ns, time_ns + 20 * MS, 50, true);
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 20 * MS);
    pass(11 * MS); /* the window of b is over and a waits */
    CHECK_EQUAL(arbiter_ask(&b, time_ns, 50), 9 * MS);

    pass(2000 * MS); /* both fell silent: nobody waits for the dead */
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0);
    CHECK_EQUAL(arbiter_others(&a, time_ns, 0), 0);

    /* Lies in the file: a busy time of a century, a clock of the future, an owner that does not exist. */
    b.file->entry[b.own].heartbeat_ns = time_ns;
    b.file->entry[b.own].busy_until_ns = UINT64_MAX;
    b.file->owner = (uint64_t)b.own + 1;
    CHECK(arbiter_ask(&a, time_ns, 30) <= ARBITER_PATIENCE_NS);
    b.file->entry[b.own].heartbeat_ns = time_ns + 100000 * MS;
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0);
    b.file->owner = 9999;
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0);

    arbiter_publish(&b, time_ns, time_ns + 50 * MS, 50, false); /* somebody does not take part: waiting is useless */
    CHECK_EQUAL(arbiter_ask(&a, time_ns, 30), 0);
    arbiter_close(&a);
    arbiter_close(&b);
    arbiter_close(&again);
    CHECK(!arbiter_open(&a, "/no/such/place", "GPU-1", 1, time_ns));
    CHECK(!arbiter_open(&a, directory, "../GPU", 1, time_ns));
    snprintf(path, sizeof path, "%s/act-GPU-1", directory);
    unlink(path);
    rmdir(directory);
}

int main(void)
{
    policy_clock = (struct policy_clock){now, now, pass};
    the_share_is_the_limit();
    often_looking_does_not_lose_credit();
    saved_time_is_bounded();
    a_clock_that_begins_anew_stops_nobody();
    a_damaged_balance_stops_nobody();
    a_refund_leaves_no_ticket_behind();
    the_right_to_probe_is_exclusive_and_lapses();
    containers_take_turns();
    return check_result("policy");
}
