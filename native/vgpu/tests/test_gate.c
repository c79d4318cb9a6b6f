/* The monitor's word to a container, in a time of the test's own. */
#include "check.h"
#include "core/log.h"
#include "policy/clock.h"
#include "policy/gate.h"

#include <stdbool.h>

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

static struct region *new_region(void)
{
    struct region *region = calloc(1, sizeof *region);
    region->utilization_switch = 1;
    region->recent_kernel = 2;
    return region;
}

static void the_gate_follows_limit_policy_and_switch(void)
{
    struct region_map map = {.region = new_region(), .slot = -1};
    static const struct {
        uint64_t limit;
        enum core_policy policy;
        int on;
        uint64_t holds;
    } rows[] = {
        {50, POLICY_DEFAULT, 1, 50}, {50, POLICY_DEFAULT, 0, 0}, {50, POLICY_FORCE, 0, 50},  {50, POLICY_FORCE, 1, 50},
        {50, POLICY_DISABLE, 1, 0},  {0, POLICY_FORCE, 1, 0},    {100, POLICY_FORCE, 1, 0},  {250, POLICY_DEFAULT, 1, 0},
        {1, POLICY_DEFAULT, 1, 1},   {99, POLICY_FORCE, 0, 99},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        map.region->sm_limit[0] = rows[i].limit;
        map.region->utilization_switch = rows[i].on;
        CHECK_EQUAL(gate_limit(&map, rows[i].policy, 0), rows[i].holds);
    }
    free(map.region);
}

/* Limit and switch are the page's; the region's are anybody's in the container. */
static void a_limits_page_stands_above_the_region(void)
{
    struct limits_page page = {.count = 1, .cards = {{"GPU-1", 0, 30}}};
    struct region_map map = {.region = new_region(), .slot = -1, .page = &page};
    map.region->sm_limit[0] = map.region->sm_limit[1] = 0;
    map.region->utilization_switch = 0;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 30);
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 0); /* not granted: it has no memory to launch anything with */
    page.lifted = 1;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
    free(map.region);
}

/* The word is the monitor's alone there, and it leaves a share. */
static void who_is_held_back_by_the_page_keeps_a_share_for_as_long_as_somebody_beats(void)
{
    struct limits_page page = {.count = 2, .cards = {{"GPU-1", 0, 30}, {"GPU-2", 0, 0}}, .more = {.magic = PAGE_MORE_MAGIC, .beat_ms = 1000}};
    struct region_map map = {.region = new_region(), .slot = -1, .page = &page};
    map.region->recent_kernel = -1;
    CHECK(!gate_closed(&map));
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 0);
    page.more.held = 5;
    page.more.beats = 1;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 5);
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 5);
    CHECK_EQUAL(gate_limit(&map, POLICY_DISABLE, 1), 5);
    page.more.held = 40;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 30);
    time_ns += 3900 * MS;
    page.more.beats = 2;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 40);
    time_ns += 4100 * MS;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 0);
    page.more.magic = 0; /* a page of before: the region says */
    CHECK(gate_closed(&map));
    free(map.region);
}

/* What its neighbours leave it: never less than what it asked for, and gone with who says so. */
static void who_may_have_more_has_what_is_left_for_as_long_as_somebody_beats(void)
{
    struct limits_page page = {.count = 2, .cards = {{"GPU-1", 0, 30}, {"GPU-2", 0, 0}}, .more = {.magic = PAGE_MORE_MAGIC, .beats = 100, .beat_ms = 1000}};
    struct region_map map = {.region = new_region(), .slot = -1, .page = &page};
    page.more.burst = 70;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 70);
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 1), 0); /* it has no limit to exceed */
    page.more.burst = 20;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 30);
    page.more.burst = 70;
    page.more.held = 5; /* more important work runs */
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 5);
    page.more.held = 0;
    page.lifted = 1;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
    page.lifted = 0;
    time_ns += 4100 * MS;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 30);
    free(map.region);
}

/* Whoever works alone now may not tomorrow, and a monitor that is gone would not say so. */
static void a_core_limit_is_lifted_for_as_long_as_somebody_beats(void)
{
    struct limits_page page = {.count = 1, .lifted = 1, .cards = {{"GPU-1", 0, 30}}, .more = {.magic = PAGE_MORE_MAGIC}};
    struct region_map map = {.region = new_region(), .slot = -1, .page = &page};
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
    time_ns += 300000 * MS; /* a monitor of before lifts limits and never beats */
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
    page.more.beat_ms = 1000;
    for (int i = 0; i < 3; i++) {
        page.more.beats++;
        CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
        time_ns += 3900 * MS;
        CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 0);
    }
    time_ns += 200 * MS;
    CHECK_EQUAL(gate_limit(&map, POLICY_DEFAULT, 0), 30);
    free(map.region);
}

static void activity_is_told_without_undoing_a_block(void)
{
    struct region_map map = {.region = new_region(), .slot = -1};
    map.region->recent_kernel = 0;
    gate_record(&map, 1, time_ns);
    CHECK_EQUAL(map.region->recent_kernel, 2);
    CHECK(map.region->last_kernel_time > 1600000000);
    map.region->recent_kernel = 1;
    gate_record(&map, 1, time_ns + 100 * MS); /* too early to tell again */
    CHECK_EQUAL(map.region->recent_kernel, 1);
    map.region->recent_kernel = -1;
    gate_record(&map, 1, time_ns + 900 * MS);
    CHECK_EQUAL(map.region->recent_kernel, -1);
    CHECK(gate_closed(&map));
    free(map.region);
}

static struct region *opened;

static void open_after(uint64_t ns)
{
    pass(ns);
    static int polls;
    if (++polls == 20)
        opened->recent_kernel = 0;
}

static void a_closed_gate_is_looked_at_every_5_ms(void)
{
    struct region_map map = {.region = new_region(), .slot = -1};
    opened = map.region;
    map.region->recent_kernel = -1;
    uint64_t begin = time_ns;
    policy_clock.sleep = open_after;
    gate_wait(&map);
    policy_clock.sleep = pass;
    CHECK_EQUAL(time_ns - begin, 100 * MS);
    free(map.region);
}

static void open_after_an_hour(uint64_t ns)
{
    static uint64_t passed;
    pass(ns);
    passed += ns;
    if (passed >= 3600000 * MS)
        opened->recent_kernel = 0;
}

static uint64_t beat(uint64_t every_ms, uint64_t beats)
{
    return every_ms << 32 | beats;
}

static struct region_ext *heard;

/* Somebody who beats every 100 ms for a second, then no more. */
static void dies_after_a_second(uint64_t ns)
{
    static uint64_t begun;
    begun = begun == 0 ? time_ns : begun;
    pass(ns);
    uint64_t beats = (time_ns - begun) / (100 * MS);
    heard->pulse = beat(100, 1 + (beats < 10 ? beats : 10));
}

static void nobody_waits_for_a_word_of_the_dead(void)
{
    struct region_map map = {.region = new_region(), .ext = calloc(1, sizeof *map.ext), .slot = -1};
    heard = map.ext;
    map.region->recent_kernel = -1;
    map.ext->pulse = beat(100, 1);
    uint64_t begun = time_ns;
    policy_clock.sleep = dies_after_a_second;
    log_set_level(0);
    gate_wait(&map);
    policy_clock.sleep = pass;
    CHECK(time_ns - begun >= 1400 * MS && time_ns - begun <= 1420 * MS); /* four beats missed */
    CHECK_EQUAL(map.region->recent_kernel, 2);
    CHECK_EQUAL(map.ext->pulse, 0); /* the next word is another one's */
    free(map.region);
    free(map.ext);
}

/* Upstream's monitors give no pulse: their word stands until they take it back, also in a file that knows of pulses. */
static void who_gives_no_pulse_is_waited_for(void)
{
    struct region_map map = {.region = new_region(), .ext = calloc(1, sizeof *map.ext), .slot = -1};
    opened = map.region;
    map.region->recent_kernel = -1;
    uint64_t begun = time_ns;
    policy_clock.sleep = open_after_an_hour;
    gate_wait(&map);
    policy_clock.sleep = pass;
    CHECK(time_ns - begun >= 3600000 * MS);
    CHECK_EQUAL(map.region->recent_kernel, 0);
    free(map.region);
    free(map.ext);
}

/* Anybody may write there: no interval is so long that one waits for ever, none so short that nobody would be waited for. */
static void an_absurd_pulse_is_bounded(void)
{
    static const uint64_t pulses[] = {1, 0xffffffffull << 32 | 7};
    static const uint64_t least[] = {400, 240000};
    for (int i = 0; i < 2; i++) {
        struct region_map map = {.region = new_region(), .ext = calloc(1, sizeof *map.ext), .slot = -1};
        map.region->recent_kernel = -1;
        map.ext->pulse = pulses[i];
        uint64_t begun = time_ns;
        gate_wait(&map);
        CHECK(time_ns - begun >= least[i] * MS && time_ns - begun <= (least[i] + 20) * MS);
        free(map.region);
        free(map.ext);
    }
}

int main(void)
{
    policy_clock = (struct policy_clock){now, now, pass};
    the_gate_follows_limit_policy_and_switch();
    a_limits_page_stands_above_the_region();
    who_is_held_back_by_the_page_keeps_a_share_for_as_long_as_somebody_beats();
    who_may_have_more_has_what_is_left_for_as_long_as_somebody_beats();
    a_core_limit_is_lifted_for_as_long_as_somebody_beats();
    activity_is_told_without_undoing_a_block();
    a_closed_gate_is_looked_at_every_5_ms();
    nobody_waits_for_a_word_of_the_dead();
    who_gives_no_pulse_is_waited_for();
    an_absurd_pulse_is_bounded();
    return check_result("gate");
}
