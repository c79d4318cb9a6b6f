#include "policy/usage.h"

#include "core/quiet.h"
#include "core/lanes.h"
#include "core/lock.h"
#include "core/waits.h"
#include "policy/budget.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SAY_NS 500000ll          /* what is charged before it is said */
#define LOOK_NS 1000000ull       /* between looks at what others say */
#define PROVEN_MOST_NS 1000000000ll
#define PATIENCE_NS 250000000ll  /* at first, and the most that is saved up without a proof */
#define PATIENCE_MOST_NS 500000000ll
#define PATIENCE_PART 20         /* of the time, whatever locks show */
#define PATIENCE_PROOF 125       /* percent of what others used: they pause between their launches */
#define LATE_NS 5000000ll        /* the own book may be behind: what others have said of too much, and not yet */
#define APART_NS 30000000ll      /* further above it the words of the region are damage */

/* Behind those of the ledger. */
#define REGION_LANES(device) ((1ull << 61) + (1ull << 60) + (1ull << 59) + (uint64_t)(device) * REGION_SLOTS * LANES_BYTES)
#define FIRST_CARD_LANE (1ull << 60)

struct counted {
    struct lanes container, card; /* of the region's file, of the node's */
    int card_fd;
    dev_t card_device;
    ino_t card_inode;
    bool mute; /* the kernel does not let us say it */
    uint64_t looked_ns;
    int64_t proven_ns;   /* what others used, and no measurement was shortened by */
    int64_t charged_ns;  /* at the last look */
    int64_t patience_ns;
    uint64_t patience_at_ns;
};

struct usage {
    pthread_mutex_t lock;
    int pid;
    struct ext_device budgets[REGION_DEVICES];
    struct counted devices[REGION_DEVICES];
    uint64_t seen[REGION_DEVICES][REGION_SLOTS], seen_on_card[REGION_DEVICES][ARBITER_ENTRIES];
};

bool usage_open(struct region_map *map)
{
    struct usage *usage = mmap(NULL, sizeof *usage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (usage == MAP_FAILED)
        return false;
    pthread_mutex_init(&usage->lock, NULL);
    usage->pid = getpid();
    for (int device = 0; device < REGION_DEVICES; device++) {
        struct counted *counted = &usage->devices[device];
        counted->container = (struct lanes){.first = REGION_LANES(device), .count = REGION_SLOTS, .own = map->slot, .seen = usage->seen[device]};
        counted->card_fd = -1;
        counted->patience_ns = PATIENCE_NS;
    }
    map->usage = usage;
    map->usage_bytes = sizeof *usage;
    return true;
}

void usage_join_card(struct region_map *map, int device, const struct arbiter *arbiter)
{
    if (map->usage == NULL)
        return;
    struct counted *counted = &map->usage->devices[device];
    mutex_take(&map->usage->lock);
    counted->card = (struct lanes){.first = FIRST_CARD_LANE, .count = ARBITER_ENTRIES, .own = arbiter->own, .seen = map->usage->seen_on_card[device]};
    counted->card_device = arbiter->device;
    counted->card_inode = arbiter->inode;
    counted->card_fd = arbiter->fd;
    pthread_mutex_unlock(&map->usage->lock);
}

/* -1: there is none, or the program closed it. */
static int card_fd(struct counted *counted)
{
    if (!file_is(counted->card_fd, counted->card_device, counted->card_inode))
        counted->card_fd = -1;
    return counted->card_fd;
}

static uint64_t unpaid(const struct ext_device *budget)
{
    int64_t debt = shared_peek(&budget->charged_ns) - shared_peek(&budget->credit_ns);
    return debt > 0 ? (uint64_t)debt : 0;
}

/* Another thread is at it: nothing is lost. A child that no handler told of says nothing in its parent's name. */
static bool begin(struct usage *usage)
{
    return usage->pid == getpid() && pthread_mutex_trylock(&usage->lock) == 0;
}

static void say(struct region_map *map, int device, struct counted *counted)
{
    int fd = region_fd(map), card = card_fd(counted);
    counted->mute = fd < 0 || !lanes_say(&counted->container, fd, unpaid(&map->usage->budgets[device]));
    if (card >= 0)
        lanes_say(&counted->card, card, 0);
}

static int64_t add(int64_t *word, int64_t ns)
{
    return __atomic_add_fetch(word, ns, __ATOMIC_RELAXED);
}

/* Below 0: it was too much, which the next that are charged make up for. */
static void count(struct region_map *map, int device, int64_t ns)
{
    struct usage *usage = map->usage;
    struct counted *counted = &usage->devices[device];
    add(&counted->card.unsaid_ns, ns);
    if (add(&counted->container.unsaid_ns, ns) < SAY_NS || !begin(usage))
        return;
    say(map, device, counted);
    pthread_mutex_unlock(&usage->lock);
}

static struct ext_device *own_book(const struct region_map *map, int device)
{
    return map->usage != NULL ? &map->usage->budgets[device] : NULL;
}

struct ticket usage_charge(struct region_map *map, int device, int64_t cost)
{
    struct ext_device *own = own_book(map, device);
    struct ticket ticket = {budget_charge(&map->ext->devices[device], cost), own != NULL ? budget_charge(own, cost) : 0};
    if (own != NULL)
        count(map, device, cost);
    return ticket;
}

void usage_correct(struct region_map *map, int device, int64_t difference)
{
    struct ext_device *own = own_book(map, device);
    budget_correct(&map->ext->devices[device], difference);
    if (own == NULL)
        return;
    budget_correct(own, difference);
    count(map, device, difference);
}

struct ticket usage_charged(const struct region_map *map, int device)
{
    const struct ext_device *own = own_book(map, device);
    return (struct ticket){shared_get(&map->ext->devices[device].charged_ns), own != NULL ? shared_get(&own->charged_ns) : 0};
}

static bool own_allows(const struct ext_device *own, struct ticket ticket)
{
    return own == NULL || budget_allows(own, ticket.own - LATE_NS);
}

/* Words of the region may hold anything. */
static int64_t plus(int64_t ticket, int64_t ahead)
{
    int64_t sum;
    return __builtin_add_overflow(ticket, ahead, &sum) ? INT64_MAX : sum;
}

bool usage_allows(const struct region_map *map, int device, struct ticket ticket, int64_t ahead)
{
    return budget_allows(&map->ext->devices[device], plus(ticket.shared, ahead)) && own_allows(own_book(map, device), ticket);
}

struct usage_wait usage_wait(const struct region_map *map, int device, uint64_t percent, struct ticket ticket, int64_t ahead)
{
    const struct ext_device *own = own_book(map, device);
    return (struct usage_wait){.own_ns = own_allows(own, ticket) ? 0 : budget_wait_ns(own, percent, ticket.own - LATE_NS),
                               .shared_ns = budget_wait_ns(&map->ext->devices[device], percent, plus(ticket.shared, ahead))};
}

void usage_mend(struct region_map *map, int device, uint64_t now)
{
    const struct ext_device *own = own_book(map, device);
    struct ext_device *told = &map->ext->devices[device];
    if (own == NULL)
        return;
    shared_set(&told->charged_ns, shared_get(&own->charged_ns));
    shared_set(&told->credit_ns, shared_get(&own->credit_ns));
    shared_set(&told->last_refill_ns, now);
}

void usage_of_card(struct region_map *map, int device, uint64_t ns)
{
    struct usage *usage = map->usage;
    if (usage == NULL || !begin(usage))
        return;
    struct counted *counted = &usage->devices[device];
    int fd = card_fd(counted);
    add(&counted->card.unsaid_ns, (int64_t)ns);
    if (fd >= 0)
        lanes_say(&counted->card, fd, 0);
    pthread_mutex_unlock(&usage->lock);
}

static int64_t within(int64_t ns, int64_t most)
{
    return ns < most ? ns : most;
}

/* What this process used since is proof as well: a container that uses its whole limit waits all the time. */
static int64_t own_use(struct counted *counted, const struct ext_device *budget, uint64_t of_others)
{
    int64_t charged = shared_peek(&budget->charged_ns), grown = charged - counted->charged_ns - (int64_t)of_others;
    counted->charged_ns = charged;
    return grown > 0 ? grown : 0;
}

static void look(struct region_map *map, int device, uint64_t percent, struct counted *counted)
{
    struct ext_device *budget = &map->usage->budgets[device];
    int fd = region_fd(map), card = card_fd(counted);
    bool first = !counted->container.looked;
    struct lanes_found found = fd >= 0 ? lanes_look(&counted->container, fd) : (struct lanes_found){0, 0};
    uint64_t debt = first ? found.unpaid_ns : found.grown_ns;
    shared_add(&budget->charged_ns, (int64_t)debt);
    int64_t proof = card >= 0 ? (int64_t)lanes_look(&counted->card, card).grown_ns : (int64_t)found.grown_ns;
    counted->proven_ns = within(counted->proven_ns + proof, PROVEN_MOST_NS);
    proof += own_use(counted, budget, debt);
    counted->patience_ns = within(counted->patience_ns + PATIENCE_PROOF * proof / (int64_t)percent, PATIENCE_MOST_NS);
}

static int64_t balance(const struct ext_device *budget)
{
    int64_t is;
    return __builtin_sub_overflow(shared_peek(&budget->credit_ns), shared_peek(&budget->charged_ns), &is) ? INT64_MAX / 2 : is;
}

void usage_refill(struct region_map *map, int device, uint64_t percent, uint64_t now)
{
    struct usage *usage = map->usage;
    budget_refill(&map->ext->devices[device], percent, now);
    if (usage == NULL)
        return;
    budget_refill(&usage->budgets[device], percent, now);
    struct counted *counted = &usage->devices[device];
    uint64_t looked = shared_peek(&counted->looked_ns);
    if ((now >= looked && now - looked < LOOK_NS) || !begin(usage))
        return;
    look(map, device, percent, counted);
    shared_put(&counted->looked_ns, now);
    pthread_mutex_unlock(&usage->lock);
    if (balance(&map->ext->devices[device]) - balance(&usage->budgets[device]) > APART_NS)
        usage_mend(map, device, now);
}

static void count_living(struct lock_range stretch, void *data)
{
    (void)stretch;
    ++*(uint64_t *)data;
}

uint64_t usage_limit(struct region_map *map, int device, uint64_t percent)
{
    struct usage *usage = map->usage;
    if (usage == NULL || !shared_peek(&usage->devices[device].mute))
        return percent;
    uint64_t living = 1;
    int fd = region_fd(map);
    if (fd >= 0)
        lock_walk(fd, LOCK_ALIVE(0), LOCK_ALIVE(REGION_SLOTS) - LOCK_ALIVE(0), false, count_living, &living);
    return percent / living > 0 ? percent / living : 1;
}

int64_t usage_unproven(struct region_map *map, int device, uint64_t ns)
{
    if (map->usage == NULL || ns == 0)
        return 0;
    int64_t *proven = &map->usage->devices[device].proven_ns, seen = shared_peek(proven), taken;
    do
        taken = within((int64_t)ns, seen > 0 ? seen : 0);
    while (!__atomic_compare_exchange_n(proven, &seen, seen - taken, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (int64_t)ns - taken;
}

bool usage_is_patient(struct region_map *map, int device, uint64_t now)
{
    if (map->usage == NULL)
        return true;
    struct counted *counted = &map->usage->devices[device];
    uint64_t at = __atomic_exchange_n(&counted->patience_at_ns, now, __ATOMIC_RELAXED);
    int64_t earned = at != 0 && now > at ? (int64_t)((now - at) / PATIENCE_PART) : 0;
    int64_t patience = shared_peek(&counted->patience_ns);
    if (patience < PATIENCE_NS && earned > 0)
        patience = add(&counted->patience_ns, within(earned, PATIENCE_NS - patience));
    return patience > 0;
}

void usage_waited(struct region_map *map, int device, uint64_t ns)
{
    if (map->usage != NULL)
        add(&map->usage->devices[device].patience_ns, -(int64_t)ns);
}
