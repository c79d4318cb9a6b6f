/* GPU time under a limits page: the container gets its limit whatever is written into the region, and nobody waits for damage. */
#include "core/attach.h"
#include "core/lanes.h"
#include "core/lock.h"
#include "core/ledger.h"
#include "policy/usage.h"
#include "regions.h"

#define MS 1000000ull
enum { LIMIT = 30, KERNEL_US = 200 };

static struct limits_page page = {.count = 1, .cards = {{"GPU-1", 0, LIMIT}}};

static struct region_map attached(const char *name)
{
    struct region_map map;
    struct config config = config_for(name, 0);
    config.page = &page;
    region_attach(&map, &config);
    CHECK(map.ledger != NULL && usage_open(&map));
    return map;
}

static uint64_t now = 1000000 * MS;
static uint64_t random_state = 88172645463325252ull;

static uint64_t drawn(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* A program that launches whenever it may: the time that its kernels take, ns. */
struct player {
    struct region_map map;
    bool waits;
    struct ticket ticket;
    uint64_t used_ns, asked_ns, in_vain_ns, last_ns, longest_ns;
};

static void play(struct player *player)
{
    struct region_map *map = &player->map;
    usage_refill(map, 0, LIMIT, now);
    if (!player->waits)
        player->ticket = usage_charge(map, 0, KERNEL_US * 1000);
    player->waits = true;
    bool allowed = usage_allows(map, 0, player->ticket, 0);
    struct usage_wait wait = usage_wait(map, 0, LIMIT, player->ticket, 0);
    bool damaged = !allowed && wait.own_ns == 0 && (!usage_is_patient(map, 0, now) || player->in_vain_ns > 500 * MS);
    if (!allowed && wait.own_ns == 0 && !damaged) {
        usage_waited(map, 0, now - player->asked_ns);
        player->in_vain_ns += now - player->asked_ns;
    }
    player->asked_ns = now;
    if (damaged)
        usage_mend(map, 0, now);
    if (!allowed && !damaged)
        return;
    player->waits = false;
    player->in_vain_ns = 0;
    player->used_ns += KERNEL_US * 1000;
    player->longest_ns = now - player->last_ns > player->longest_ns ? now - player->last_ns : player->longest_ns;
    player->last_ns = now;
}

typedef void (*damage_fn)(struct region_map *map);

static void nothing(struct region_map *map)
{
    (void)map;
}

static void credit(struct region_map *map)
{
    map->ext->devices[0].credit_ns = map->ext->devices[0].charged_ns + 1000000 * (int64_t)MS;
}

static void debt(struct region_map *map)
{
    map->ext->devices[0].credit_ns = map->ext->devices[0].charged_ns - 1000000 * (int64_t)MS;
}

static void stopped_clock(struct region_map *map)
{
    map->ext->devices[0].last_refill_ns = now + 900 * MS;
}

static void anything(struct region_map *map)
{
    unsigned char *device = (unsigned char *)&map->ext->devices[0];
    for (int i = 0; i < 8; i++)
        device[drawn() % sizeof map->ext->devices[0]] = (unsigned char)drawn();
}

static void however_it_is_damaged_the_limit_holds_and_nobody_stands_still(const char *name, damage_fn damage, int count)
{
    struct player players[4];
    memset(players, 0, sizeof players);
    uint64_t begun = now, used = 0, longest = 0;
    for (int i = 0; i < count; i++)
        players[i] = (struct player){.map = attached(name), .asked_ns = now, .last_ns = now};
    for (; now < begun + 10000 * MS; now += MS / 10) {
        damage(&players[0].map);
        play(&players[drawn() % (unsigned)count]);
    }
    for (int i = 0; i < count; i++) {
        used += players[i].used_ns;
        longest = players[i].longest_ns > longest ? players[i].longest_ns : longest;
        region_forget(&players[i].map);
    }
    CHECK(used <= 10000 * MS * LIMIT / 100 + 30 * MS);
    CHECK(used >= 5000 * MS * LIMIT / 100);
    CHECK(longest < 1000 * MS);
}

static void who_comes_later_owes_what_the_living_owe(void)
{
    struct region_map one = attached("late");
    usage_refill(&one, 0, LIMIT, now);
    usage_charge(&one, 0, 3000 * (int64_t)MS);
    memset(&one.ext->devices[0], 0, sizeof one.ext->devices[0]);
    struct region_map two = attached("late");
    usage_refill(&two, 0, LIMIT, now);
    struct ticket ticket = usage_charge(&two, 0, MS);
    CHECK(usage_wait(&two, 0, LIMIT, ticket, 0).own_ns > 900 * MS);
    region_forget(&one);
    region_forget(&two);
}

static void a_measurement_is_shortened_by_no_more_than_others_have_used(void)
{
    struct region_map one = attached("proof"), two = attached("proof");
    usage_refill(&one, 0, LIMIT, now);
    usage_refill(&two, 0, LIMIT, now);
    CHECK(usage_unproven(&one, 0, 5 * MS) == 5 * (int64_t)MS);
    usage_charge(&two, 0, 3 * (int64_t)MS);
    usage_refill(&one, 0, LIMIT, now += 2 * MS);
    CHECK(usage_unproven(&one, 0, 2 * MS) == 0);
    CHECK(usage_unproven(&one, 0, 5 * MS) == 4 * (int64_t)MS);
    region_forget(&one);
    region_forget(&two);
}

/* A lane that somebody else has locked: who cannot say what it uses keeps to its even part. */
static void who_cannot_say_what_it_uses_has_an_even_part(void)
{
    struct region_map one = attached("mute"), two = attached("mute"), three = attached("mute");
    const uint64_t everything = 1ull << 61;
    CHECK(lock_try(region_fd(&three), everything + (everything >> 1) + (everything >> 2), 1ull << 58) == LOCK_TAKEN);
    usage_charge(&one, 0, 3 * (int64_t)MS);
    CHECK(usage_limit(&one, 0, 90) == 30);
    CHECK(usage_limit(&two, 0, 90) == 90);
    region_forget(&one);
    region_forget(&two);
    region_forget(&three);
}

static void lanes_tell_what_was_counted_since_and_of_a_new_owner_all(void)
{
    struct region_map one = attached("lanes"), two = attached("lanes");
    uint64_t seen[4] = {0}, unseen[4] = {0};
    struct lanes mine = {.first = 1ull << 50, .count = 4, .own = 1, .seen = unseen};
    struct lanes theirs = {.first = 1ull << 50, .count = 4, .own = 2, .seen = seen};
    mine.unsaid_ns = 5000;
    CHECK(lanes_say(&mine, region_fd(&one), 7000));
    struct lanes_found found = lanes_look(&theirs, region_fd(&two));
    CHECK(found.grown_ns == 0 && found.unpaid_ns == 7000);
    mine.unsaid_ns = 3999;
    CHECK(lanes_say(&mine, region_fd(&one), 7000) && mine.unsaid_ns == 999);
    CHECK(lanes_look(&theirs, region_fd(&two)).grown_ns == 3000);
    mine.unsaid_ns = -4000;
    CHECK(lanes_say(&mine, region_fd(&one), 0) && lanes_look(&theirs, region_fd(&two)).grown_ns == 0);
    region_forget(&one);
    one = attached("lanes");
    mine = (struct lanes){.first = 1ull << 50, .count = 4, .own = 1, .unsaid_ns = 2000, .seen = unseen};
    CHECK(lanes_say(&mine, region_fd(&one), 0));
    CHECK(lanes_look(&theirs, region_fd(&two)).grown_ns == 2000);
    region_forget(&one);
    region_forget(&two);
}

int main(void)
{
    CHECK(directory_made());
    lanes_tell_what_was_counted_since_and_of_a_new_owner_all();
    const damage_fn damages[] = {nothing, credit, debt, stopped_clock, anything};
    for (unsigned i = 0; i < sizeof damages / sizeof *damages; i++)
        for (int count = 1; count <= 4; count += 3) {
            char name[16];
            snprintf(name, sizeof name, "d%u-%d", i, count);
            however_it_is_damaged_the_limit_holds_and_nobody_stands_still(name, damages[i], count);
        }
    who_comes_later_owes_what_the_living_owe();
    a_measurement_is_shortened_by_no_more_than_others_have_used();
    who_cannot_say_what_it_uses_has_an_even_part();
    return check_result("usage") | !directory_removed();
}
