#include "core/ledger.h"

#include "core/lock.h"
#include "core/numbers.h"
#include "core/process.h"
#include "core/quiet.h"
#include "core/slots.h"
#include "core/waits.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Where the locks lie. Lanes of a device come before the places of its shared allocations. A process whose descriptor was closed has no way back to
 * its locks, which stay for as long as the mapping: it goes on in the next part of its lane.
 */
enum { PLACES = 2048, PARTS = 8, LANES = REGION_SLOTS + PLACES };
#define LANE_BYTES (1ull << 44)
#define PART_BYTES (LANE_BYTES / PARTS)
#define LANE(device, lane) ((1ull << 60) + ((uint64_t)(device) * LANES + (lane)) * LANE_BYTES)
#define PLACE(device, place) LANE(device, REGION_SLOTS + (place))
#define CONTEXT(device, slot) ((1ull << 61) + ((uint64_t)(device) * REGION_SLOTS + (slot)) * LANE_BYTES)
#define MAKER(device, place) ((1ull << 61) + (1ull << 59) + (uint64_t)(device) * PLACES + (place))
#define PAYER(device, place) (MAKER(device, place) + (1ull << 32))
#define TURN(device) ((1ull << 61) + (1ull << 60) + (device))
#define FIRST(device) (TURN(REGION_DEVICES) + (device))
#define NAME(name) ((1ull << 62) + ((name) >> 17 << 15)) /* of the 2^15 bytes from here on one says device and place */
#define NAMES (1ull << 15)

enum { FIRST_WAITS = 100 }; /* of 50 ms at most */

struct hold {
    uint64_t bytes, name[2]; /* of its descriptors, or the one it was joined by; of a handle */
    uint16_t place, device;
    bool held, maker, payer; /* made it; is the one that monitors are told of */
    int exports;
};

struct ledger {
    pthread_mutex_t changing, deciding;
    int pid;            /* a child that no handler of the C library told shares the locks and has no share of its own */
    unsigned part, reopened;
    uint64_t granted[REGION_DEVICES], asked[REGION_DEVICES], context[REGION_DEVICES];
    int first[REGION_DEVICES]; /* a thread makes the container's first context */
    uint32_t highest;          /* of the numbers of shared allocations */
    struct hold shared_allocations[SHARED_ALLOCATIONS + 1];
};

bool ledger_open(struct region_map *map)
{
    if (!map->ext_shared || map->slot < 0 || !lock_of_open_files() || !map->locked)
        return false;
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ledger == MAP_FAILED)
        return false;
    pthread_mutex_init(&ledger->changing, NULL);
    pthread_mutex_init(&ledger->deciding, NULL);
    ledger->pid = getpid();
    ledger->reopened = map->reopened;
    map->ledger = ledger;
    map->ledger_bytes = sizeof *ledger;
    map->shared_allocations = NULL;
    return true;
}

/* changing held. What the closed descriptor locked is another's now, and counted as that. */
static void begin_anew(struct region_map *map, struct ledger *ledger)
{
    ledger->reopened = map->reopened;
    ledger->part++;
    memset(ledger->granted, 0, sizeof ledger->granted);
    memset(ledger->asked, 0, sizeof ledger->asked);
    memset(ledger->context, 0, sizeof ledger->context);
    memset(ledger->shared_allocations, 0, sizeof ledger->shared_allocations);
}

/* The descriptor to lock by, with changing held until done; -1: not this process's ledger, or none to be had. */
static int begin(struct region_map *map)
{
    struct ledger *ledger = map->ledger;
    if (ledger->pid != getpid())
        return -1;
    mutex_take(&ledger->changing);
    int fd = region_fd(map);
    if (fd >= 0 && ledger->reopened != map->reopened)
        begin_anew(map, ledger);
    if (fd >= 0 && ledger->part < PARTS)
        return fd;
    pthread_mutex_unlock(&ledger->changing);
    return -1;
}

static void done(struct region_map *map)
{
    pthread_mutex_unlock(&map->ledger->changing);
}

static uint64_t lane_of(const struct region_map *map, int device)
{
    return LANE(device, map->slot) + map->ledger->part * PART_BYTES;
}

/* changing held. Granted comes first, then what is asked for. */
static void shorten(struct region_map *map, int fd, int device, uint64_t bytes)
{
    const struct ledger *ledger = map->ledger;
    if (bytes > 0)
        lock_release(fd, lane_of(map, device) + ledger->granted[device] + ledger->asked[device], bytes);
}

/* changing held */
static bool ask(struct region_map *map, int fd, int device, uint64_t bytes)
{
    struct ledger *ledger = map->ledger;
    uint64_t held = ledger->granted[device] + ledger->asked[device];
    bool said = bytes <= PART_BYTES - held && (bytes == 0 || lock_share(fd, lane_of(map, device) + held, bytes) == LOCK_TAKEN);
    ledger->asked[device] += said ? bytes : 0;
    return said;
}

/* changing held */
static bool grant(struct region_map *map, int fd, int device, uint64_t bytes)
{
    struct ledger *ledger = map->ledger;
    if (bytes > 0 && (bytes > ledger->asked[device] || lock_try(fd, lane_of(map, device) + ledger->granted[device], bytes) != LOCK_TAKEN))
        return false;
    ledger->granted[device] += bytes;
    ledger->asked[device] -= bytes;
    return true;
}

void ledger_give_back(struct region_map *map, int device, uint64_t bytes)
{
    struct ledger *ledger = map->ledger;
    int fd = begin(map);
    if (fd < 0)
        return;
    bytes = bytes < ledger->granted[device] ? bytes : ledger->granted[device]; /* the rest is locked by a descriptor that was closed */
    uint64_t left = ledger->granted[device] - bytes;
    if (ledger->asked[device] > 0)
        lock_share(fd, lane_of(map, device) + left, ledger->asked[device]);
    ledger->granted[device] = left;
    shorten(map, fd, device, bytes);
    done(map);
}

/* ---- the sum --------------------------------------------------------------------------------------------------------- */

struct summing {
    uint64_t first, sum;
    uint8_t lanes[REGION_SLOTS / 8], places[PLACES / 8];
};

static bool is_marked(const uint8_t *marks, unsigned at)
{
    return (marks[at / 8] >> at % 8 & 1) != 0;
}

static void mark(uint8_t *marks, unsigned at)
{
    marks[at / 8] |= (uint8_t)(1u << at % 8);
}

static void add_stretch(struct lock_range stretch, void *data)
{
    struct summing *summing = data;
    summing->sum = add_u64(summing->sum, stretch.bytes);
    uint64_t lane = (stretch.start - summing->first) / LANE_BYTES;
    if (lane < REGION_SLOTS)
        mark(summing->lanes, (unsigned)lane);
    else if (lane < LANES)
        mark(summing->places, (unsigned)lane - REGION_SLOTS);
}

static bool add_others(int fd, int device, bool asked, struct summing *summing)
{
    uint64_t places = PLACE(device, 0);
    summing->first = LANE(device, 0);
    if (asked)
        return lock_walk(fd, summing->first, LANES * LANE_BYTES, false, add_stretch, summing);
    return lock_walk(fd, summing->first, places - summing->first, true, add_stretch, summing) &&
           lock_walk(fd, places, PLACES * LANE_BYTES, false, add_stretch, summing);
}

static void add_bytes(struct lock_range stretch, void *data)
{
    *(uint64_t *)data += stretch.bytes;
}

/* Own locks are in nobody's way, so the kernel does not tell of them: of shared allocations what nobody else shares is added. */
static void add_own(const struct ledger *ledger, int fd, int device, bool asked, struct summing *summing)
{
    summing->sum = add_u64(summing->sum, ledger->granted[device] + (asked ? ledger->asked[device] : 0));
    for (uint32_t number = 1; number <= ledger->highest; number++) {
        const struct hold *hold = &ledger->shared_allocations[number];
        uint64_t counted = 0;
        if (!hold->held || hold->device != device)
            continue;
        if (is_marked(summing->places, hold->place))
            lock_walk(fd, PLACE(device, hold->place), hold->bytes, false, add_bytes, &counted);
        summing->sum = add_u64(summing->sum, hold->bytes - counted);
    }
}

/*
 * Who ends loses its locks a moment before the driver has its memory back: until it is gone, what its slot says counts. Who runs and
 * holds no lock of its slot is not its owner.
 */
static void add_ending(struct region_map *map, int fd, int device, struct summing *summing)
{
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        uint64_t bytes = slot_holds(map, slot, device);
        if (bytes == 0 || slot == map->slot || is_marked(summing->lanes, (unsigned)slot) || lock_held_elsewhere(fd, LOCK_ALIVE(slot), 1))
            continue;
        if (slot_is_ending(map, slot))
            summing->sum = add_u64(summing->sum, bytes);
    }
}

/* changing held. UINT64_MAX: it cannot be told. */
static uint64_t sum(struct region_map *map, int fd, int device, bool asked)
{
    struct summing summing;
    memset(&summing, 0, sizeof summing);
    bool told = add_others(fd, device, asked, &summing);
    add_own(map->ledger, fd, device, asked, &summing);
    add_ending(map, fd, device, &summing);
    return told ? summing.sum : UINT64_MAX;
}

uint64_t ledger_sum(struct region_map *map, int device, bool asked)
{
    int fd = begin(map);
    if (fd < 0)
        return UINT64_MAX;
    uint64_t bytes = sum(map, fd, device, asked);
    done(map);
    return bytes;
}

bool ledger_request(struct region_map *map, int device, uint64_t bytes, uint64_t limit)
{
    int fd = begin(map);
    if (fd < 0)
        return false;
    bool granted = ask(map, fd, device, bytes);
    if (granted && !((limit == 0 || sum(map, fd, device, true) <= limit) && grant(map, fd, device, bytes))) {
        granted = false;
        map->ledger->asked[device] -= bytes;
        shorten(map, fd, device, bytes);
    }
    done(map);
    return granted;
}

/* ---- the lock of whoever decides ---------------------------------------------------------------------------------------------------- */

bool ledger_lock_take(struct region_map *map, int device)
{
    struct ledger *ledger = map->ledger;
    if (ledger->pid != getpid() || !mutex_take_in_time(&ledger->deciding))
        return false;
    int fd = region_fd(map);
    if (fd >= 0 && lock_wait(fd, TURN(device), 1) == LOCK_TAKEN)
        return true;
    pthread_mutex_unlock(&ledger->deciding);
    return false;
}

void ledger_lock_give(struct region_map *map, int device)
{
    int fd = region_fd(map);
    if (fd >= 0)
        lock_release(fd, TURN(device), 1);
    pthread_mutex_unlock(&map->ledger->deciding);
}

/* ---- contexts -------------------------------------------------------------------------------------------------------- */

static void most_of(struct lock_range stretch, void *data)
{
    uint64_t *most = data;
    *most = max_u64(stretch.bytes, *most);
}

uint64_t ledger_context(struct region_map *map, int device)
{
    int fd = begin(map);
    if (fd < 0)
        return 0;
    uint64_t most = map->ledger->context[device];
    lock_walk(fd, CONTEXT(device, 0), REGION_SLOTS * LANE_BYTES, false, most_of, &most);
    done(map);
    return most;
}

void ledger_context_took(struct region_map *map, int device, uint64_t bytes)
{
    int fd = begin(map);
    if (fd < 0)
        return;
    uint64_t *told = &map->ledger->context[device], from = CONTEXT(device, map->slot);
    if (bytes < *told)
        lock_release(fd, from + bytes, *told - bytes);
    else if (bytes > *told)
        lock_share(fd, from, bytes);
    *told = bytes;
    done(map);
}

bool ledger_first_context(struct region_map *map, int device)
{
    struct ledger *ledger = map->ledger;
    for (int attempt = 0; attempt < FIRST_WAITS && ledger->pid == getpid() && ledger_context(map, device) == 0; attempt++) {
        int fd = region_fd(map), nobody = 0;
        bool alone = shared_swap_if(&ledger->first[device], &nobody, 1);
        if (alone && fd >= 0 && lock_wait(fd, FIRST(device), 1) == LOCK_TAKEN)
            return true;
        if (alone)
            shared_set(&ledger->first[device], 0);
        else
            quiet_sleep(LOCK_WAIT_MAX_NS);
    }
    return false;
}

void ledger_first_context_made(struct region_map *map, int device)
{
    int fd = region_fd(map);
    if (fd >= 0)
        lock_release(fd, FIRST(device), 1);
    shared_set(&map->ledger->first[device], 0);
}

/* ---- shared allocations ---------------------------------------------------------------------------------------------------------- */

/* changing held */
static bool is_place_of_own(const struct ledger *ledger, int device, unsigned place)
{
    for (uint32_t number = 1; number <= ledger->highest; number++) {
        const struct hold *hold = &ledger->shared_allocations[number];
        if (hold->held && hold->device == device && hold->place == place)
            return true;
    }
    return false;
}

/* changing held. Alone on the whole place for a moment, so it is nobody else's; PLACES: there is none. */
static unsigned claim_place(const struct ledger *ledger, int fd, int slot, int device, uint64_t bytes)
{
    for (unsigned step = 0; step < PLACES; step++) {
        unsigned place = ((unsigned)slot * 37 + step) % PLACES;
        uint64_t from = PLACE(device, place);
        if (is_place_of_own(ledger, device, place) || lock_try(fd, from, LANE_BYTES) != LOCK_TAKEN)
            continue;
        bool laid = lock_share(fd, from, bytes) == LOCK_TAKEN && lock_try(fd, MAKER(device, place), 1) == LOCK_TAKEN;
        lock_release(fd, laid ? from + bytes : from, laid ? LANE_BYTES - bytes : LANE_BYTES);
        return laid ? place : PLACES;
    }
    return PLACES;
}

static uint64_t at_name(const struct hold *hold, uint64_t name)
{
    return NAME(name) + (uint64_t)hold->device * PLACES + hold->place;
}

/* changing held */
static bool add_name(struct hold *hold, int fd, uint64_t name)
{
    for (int i = 0; i < 2 && name != 0; i++) {
        if (hold->name[i] == name)
            return true;
        if (hold->name[i] != 0 || lock_share(fd, at_name(hold, name), 1) != LOCK_TAKEN)
            continue;
        hold->name[i] = name;
        return true;
    }
    return false;
}

/* changing held */
static void let_go(struct hold *hold, int fd)
{
    for (int i = 0; i < 2; i++)
        if (hold->name[i] != 0)
            lock_release(fd, at_name(hold, hold->name[i]), 1);
    lock_release(fd, MAKER(hold->device, hold->place), 1);
    lock_release(fd, PAYER(hold->device, hold->place), 1);
    lock_release(fd, PLACE(hold->device, hold->place), LANE_BYTES);
    *hold = (struct hold){.held = false};
}

/* changing held. 0: there is none. */
static uint32_t free_number(const struct ledger *ledger)
{
    uint32_t number = 1;
    while (number <= SHARED_ALLOCATIONS && ledger->shared_allocations[number].held)
        number++;
    return number <= SHARED_ALLOCATIONS ? number : 0;
}

static void keep(struct ledger *ledger, uint32_t number, const struct hold *hold)
{
    ledger->shared_allocations[number] = *hold;
    ledger->highest = number > ledger->highest ? number : ledger->highest;
}

uint32_t ledger_shared_new(struct region_map *map, int device, uint64_t bytes, uint64_t descriptors, uint64_t words)
{
    struct ledger *ledger = map->ledger;
    struct hold hold = {.bytes = bytes, .device = (uint16_t)device, .held = true, .maker = true};
    int fd = bytes > 0 && bytes < LANE_BYTES ? begin(map) : -1;
    if (fd < 0)
        return 0;
    uint32_t number = free_number(ledger);
    unsigned place = number != 0 ? claim_place(ledger, fd, map->slot, device, bytes) : PLACES;
    hold.place = (uint16_t)place;
    if (place < PLACES && add_name(&hold, fd, descriptors) && (words == 0 || add_name(&hold, fd, words)))
        keep(ledger, number, &hold);
    else if (place < PLACES)
        let_go(&hold, fd);
    done(map);
    return hold.held && place < PLACES ? number : 0;
}

bool ledger_shared_name(struct region_map *map, uint32_t number, uint64_t name)
{
    int fd = begin(map);
    if (fd < 0)
        return false;
    bool named = map->ledger->shared_allocations[number].held && add_name(&map->ledger->shared_allocations[number], fd, name);
    done(map);
    return named;
}

/* Whoever joined it hands on descriptors of the same name: any lock on the file says it. */
int ledger_shared_export(struct region_map *map, uint32_t number, uint64_t *descriptors)
{
    struct hold *hold = &map->ledger->shared_allocations[number];
    int export = -1;
    if (begin(map) < 0)
        return -1;
    if (hold->held && hold->name[0] != 0 && hold->name[0] % SHARED_ALLOCATION_EXPORTS == 0) {
        export = hold->exports++ % SHARED_ALLOCATION_EXPORTS;
        *descriptors = hold->name[0];
    }
    done(map);
    return export;
}

static bool sought_out(int fd, uint64_t name, struct hold *hold)
{
    struct lock_range found;
    if (!lock_find(fd, NAME(name), NAMES, false, &found) || found.bytes != 1)
        return false;
    hold->device = (uint16_t)((found.start - NAME(name)) / PLACES);
    hold->place = (uint16_t)((found.start - NAME(name)) % PLACES);
    bool there = lock_find(fd, PLACE(hold->device, hold->place), LANE_BYTES, false, &found);
    hold->bytes = found.bytes;
    return there && found.bytes < LANE_BYTES;
}

/* Its holder may let go, and another may take the place, until both are locked here: then the name is still his. */
static bool join(const struct ledger *ledger, int fd, uint64_t name, struct hold *hold)
{
    struct lock_range found;
    if (!sought_out(fd, name, hold) || is_place_of_own(ledger, hold->device, hold->place))
        return false;
    bool shares = add_name(hold, fd, name) && lock_share(fd, PLACE(hold->device, hold->place), hold->bytes) == LOCK_TAKEN;
    if (shares && lock_find(fd, at_name(hold, name), 1, false, &found))
        return true;
    let_go(hold, fd);
    return false;
}

/* changing held. 0: it is not held here by that name. */
static uint32_t number_of(const struct ledger *ledger, uint64_t name)
{
    for (uint32_t number = 1; number <= ledger->highest; number++) {
        const struct hold *hold = &ledger->shared_allocations[number];
        if (hold->held && (hold->name[0] == name || hold->name[1] == name))
            return number;
    }
    return 0;
}

uint32_t ledger_shared_join(struct region_map *map, uint64_t name, struct shared_allocation *what)
{
    struct ledger *ledger = map->ledger;
    struct hold hold = {.held = true};
    int fd = name != 0 ? begin(map) : -1;
    if (fd < 0)
        return 0;
    uint32_t number = number_of(ledger, name);
    if (number == 0 && (number = free_number(ledger)) != 0) {
        if (join(ledger, fd, name, &hold))
            keep(ledger, number, &hold);
        else
            number = 0;
    }
    *what = (struct shared_allocation){.bytes = ledger->shared_allocations[number].bytes, .device = (int16_t)ledger->shared_allocations[number].device};
    done(map);
    return number;
}

void ledger_shared_leave(struct region_map *map, uint32_t number, struct shared_allocation *what)
{
    struct hold *hold = &map->ledger->shared_allocations[number];
    int fd = begin(map);
    if (fd < 0)
        return;
    *what = (struct shared_allocation){.bytes = hold->bytes, .device = (int16_t)hold->device};
    if (hold->held)
        let_go(hold, fd);
    done(map);
}

/* changing held. Who made it pays, and then whoever comes first. */
static bool pays(struct hold *hold, int fd)
{
    struct lock_range found;
    if (!hold->payer && !hold->maker && !lock_find(fd, MAKER(hold->device, hold->place), 1, false, &found))
        hold->payer = lock_try(fd, PAYER(hold->device, hold->place), 1) == LOCK_TAKEN;
    return hold->maker || hold->payer;
}

static uint64_t sum_of_shared_allocations(struct region_map *map, int device, bool (*counts)(struct hold *hold, int fd, bool *certain), bool *certain)
{
    struct ledger *ledger = map->ledger;
    uint64_t sum = 0;
    int fd = begin(map);
    *certain = fd >= 0;
    if (fd < 0)
        return 0;
    for (uint32_t number = 1; number <= ledger->highest; number++) {
        struct hold *hold = &ledger->shared_allocations[number];
        if (hold->held && hold->device == device && counts(hold, fd, certain))
            sum += hold->bytes;
    }
    done(map);
    return sum;
}

static bool is_counted(struct hold *hold, int fd, bool *certain)
{
    struct lock_range found;
    if (hold->maker || lock_find(fd, MAKER(hold->device, hold->place), 1, false, &found))
        return hold->maker;
    if (!lock_find(fd, PLACE(hold->device, hold->place), hold->bytes, false, &found))
        return true;
    *certain = false;
    return pays(hold, fd);
}

uint64_t ledger_shared_counted(struct region_map *map, int device, bool *certain)
{
    return sum_of_shared_allocations(map, device, is_counted, certain);
}

static bool is_paid(struct hold *hold, int fd, bool *certain)
{
    (void)certain;
    return pays(hold, fd);
}

uint64_t ledger_shared_paid(struct region_map *map, int device)
{
    bool certain;
    return sum_of_shared_allocations(map, device, is_paid, &certain);
}
