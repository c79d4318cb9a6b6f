#include "services/reconcile.h"

#include "core/log.h"
#include "core/quiet.h"
#include "core/waits.h"
#include "services/guest.h"
#include "services/joint_memory.h"
#include "services/listed.h"
#include "services/lodging.h"
#include "services/pools.h"
#include "services/underway.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { LOOKS = 4, PATIENT_LOOKS = 20 };
#define PAUSE_NS 100000l

enum asking { BY_THE_WATCH, BY_A_CALL, AFTER_A_MOVE };

/* All parts are in the slot's module_size. The last is changed without the lock, too. */
static struct {
    uint64_t modules;  /* claimed by modules, and by contexts for their heaps */
    uint64_t residue;
    uint64_t settled;  /* the slot's seqlock at the last settling */
    uint64_t unnamed;  /* residue from the next settling on: of those for whom the lock was not to be had, and of data that went */
    uint64_t kept;     /* of data that went, since the last exact look */
    uint64_t most;     /* at the last look: what is not certain to be data */
    uint64_t lent;     /* residue that a look may take away, and that a module may hold in blocks that data pay for */
    int64_t net;       /* at the last look: NVML's figure less contexts and data */
} unbooked[REGION_DEVICES];

/* Entries on their way that change what no hook books, and what is reserved for them. Not under the lock: they begin without it. */
static struct {
    uint64_t begun, ended, expected;
} moves[REGION_DEVICES];

static pthread_mutex_t unbooked_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Never waited for longer than 50 ms; false: it was not to be had. */
static bool reconcile_lock(void)
{
    return mutex_take_in_time(&unbooked_mutex);
}

static void reconcile_unlock(void)
{
    pthread_mutex_unlock(&unbooked_mutex);
}

static __thread bool held_for_fork __attribute__((tls_model("initial-exec")));

void reconcile_before_fork(void)
{
    held_for_fork = reconcile_lock();
}

void reconcile_after_fork(bool child)
{
    if (child) {
        unbooked_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        memset(unbooked, 0, sizeof unbooked);
        memset(moves, 0, sizeof moves);
    } else if (held_for_fork) {
        reconcile_unlock();
    }
}

void reconcile_begin(int device)
{
    shared_add(&moves[device].begun, 1);
}

void reconcile_end(int device)
{
    shared_add(&moves[device].ended, 1);
}

static void no_longer_expected(int device, uint64_t bytes)
{
    shared_add(&moves[device].expected, -bytes);
    reconcile_end(device);
}

/* Nothing is on its way but what the caller itself began, and nothing has begun since. */
static bool nothing_moves(int device, uint64_t begun, uint64_t own)
{
    return shared_get(&moves[device].begun) == begun && shared_get(&moves[device].ended) + own == begun;
}

static struct region_slot *own_slot(void)
{
    return region_has_books(&guest.map) ? &guest.map.region->procs[guest.map.slot] : NULL;
}

static uint64_t booked_otherwise(const struct device_memory *used)
{
    return shared_get(&used->context_size) + shared_get(&used->data_size);
}

static uint64_t above(uint64_t bytes, uint64_t known)
{
    return bytes > known ? bytes - known : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/*
 * NVML's figure beyond contexts and data. Bookings go on meanwhile: allocations are booked before they happen and frees after, so
 * the larger of the sums before and after can only make the difference too small, unless something came and went in between.
 * Then it is looked at again, and the smallest of the differences counts: nothing is ever booked twice. It is exact where nobody was
 * between books and driver all the while; else what is there may be more.
 */
static bool difference(int device, struct region_slot *own, int looks, uint64_t *beyond, bool *exact)
{
    struct device_memory *used = &own->used[device];
    uint64_t besides = joint_beside_driver(device);
    uint64_t least = UINT64_MAX;
    int64_t net = INT64_MAX;
    *exact = false;
    for (int look = 0; look < looks; look++) {
        bool quiet = underway_nobody_else(device);
        uint64_t stamp = shared_get(&own->seqlock), before = above(booked_otherwise(used), besides), measured = listed_bytes(device);
        if (measured == 0)
            return false;
        uint64_t after = above(booked_otherwise(used), besides), booked = larger(before, after), more = above(measured, booked);
        int64_t signed_more = (int64_t)(measured - booked);
        unbooked[device].most = above(measured, above(before, lodging_paid_for(device)));
        *exact = quiet && underway_nobody_else(device) && shared_get(&own->seqlock) == stamp;
        least = more < least || *exact ? more : least;
        net = signed_more < net || *exact ? signed_more : net;
        shared_set(&unbooked[device].settled, *exact ? stamp : UINT64_MAX); /* what was not exact is looked at again */
        shared_set(&own->monitorused[device], measured);
        if (*exact || (looks == LOOKS && shared_get(&own->seqlock) == stamp))
            break;
        if (looks > LOOKS)
            quiet_sleep(PAUSE_NS);
    }
    unbooked[device].net = net;
    *beyond = least;
    return true;
}

/*
 * Under the lock. False: nobody tells. Not exact where a module is on the card and not yet in the books, or the other way round, for
 * another thread loads or unloads it; nor where a pool may have given back what is still booked, at a synchronisation of the
 * program: whoever may call the driver asks, before and after.
 */
static bool look(int device, struct region_slot *own, enum asking asking, uint64_t *beyond, bool *exact)
{
    unbooked[device].residue += __atomic_exchange_n(&unbooked[device].unnamed, 0, __ATOMIC_SEQ_CST);
    unbooked[device].lent = lodging_begins(device, unbooked[device].residue); /* before the look: who gives back after it is kept to it */
    uint64_t begun = shared_get(&moves[device].begun);
    bool asks = asking != BY_THE_WATCH, told = false, current = asks || !pools_any();
    *exact = false;
    if (asks)
        pools_settle(device, false);
    if (pools_pause()) { /* none is between the growth of its reserve and its booking */
        told = difference(device, own, asking == AFTER_A_MOVE ? PATIENT_LOOKS : LOOKS, beyond, exact);
        pools_go_on();
    }
    *exact = *exact && current && nothing_moves(device, begun, asking == AFTER_A_MOVE) && !(asks && pools_settle(device, false));
    if (!*exact)
        shared_set(&unbooked[device].settled, UINT64_MAX);
    return told;
}

/* Under the lock, after each look and what was made of it. What the residue lost may be a module's in a block that data pay for. */
static void looked(int device, bool exact, uint64_t lost)
{
    lodging_ends(device, above(unbooked[device].lent, lost));
    unbooked[device].lent = 0;
    if (!exact)
        return;
    shared_set(&unbooked[device].kept, 0);
    lodging_at_most(device, above(unbooked[device].most, unbooked[device].modules + unbooked[device].residue));
}

/* Who holds the lock may be without a processor: a context, which is made once, waits for him. */
void reconcile_sight(int device, bool moving, struct sighting *seen)
{
    struct region_slot *own = own_slot();
    uint64_t beyond;
    bool exact = false, known = false;
    *seen = (struct sighting){.answer = RECONCILE_UNTOLD};
    for (int attempt = 0; own != NULL && !exact && attempt < (known || moving ? LOOKS : PATIENT_LOOKS); attempt++) {
        if (!reconcile_lock())
            continue;
        bool told = look(device, own, moving ? AFTER_A_MOVE : BY_A_CALL, &beyond, &exact);
        looked(device, false, 0);
        known |= told;
        if (told)
            *seen = (struct sighting){exact ? RECONCILE_EXACT : RECONCILE_AT_LEAST, true, unbooked[device].net, unbooked[device].settled};
        reconcile_unlock();
        if (!known && listed_bytes(device) == 0) /* else a pool was growing */
            return;
    }
    if (!known && own != NULL && listed_bytes(device) != 0)
        seen->answer = RECONCILE_AT_LEAST;
}

enum reconcile_answer reconcile_growth(const struct sighting *before, const struct sighting *after, int64_t *by)
{
    bool since = before->stamp == SIGHTED_BEFORE_ALL || before->stamp == after->stamp;
    *by = before->known && after->known ? after->net - before->net : 0;
    if (after->answer != RECONCILE_EXACT)
        return after->answer;
    return before->answer == RECONCILE_EXACT && since ? RECONCILE_EXACT : RECONCILE_AT_LEAST;
}

/* Our own booking is no reason to look again. */
static void changed(int device, struct region_slot *own, uint64_t stamp)
{
    if (unbooked[device].settled == stamp)
        shared_set(&unbooked[device].settled, shared_get(&own->seqlock));
}

/* The residue, in exchange for what was booked for it under another name: the books change by the difference alone. */
static void set_residue(int device, struct region_slot *own, bool exact, uint64_t residue, uint64_t instead_of)
{
    uint64_t had = unbooked[device].residue + instead_of, lost = above(unbooked[device].residue, residue), stamp = shared_get(&own->seqlock);
    if (residue != unbooked[device].residue)
        log_debug("device %d: %llu bytes that no hook saw", device, (unsigned long long)residue);
    __atomic_store_n(&unbooked[device].residue, residue, __ATOMIC_RELAXED);
    looked(device, exact, lost);
    if (residue > had)
        backend->charge(&guest.map, device, MEMORY_MODULE, residue - had);
    else if (residue < had)
        backend->release(&guest.map, device, MEMORY_MODULE, had - residue);
    else
        return;
    changed(device, own, stamp);
}

void reconcile_settle(int device, bool by_the_watch)
{
    struct region_slot *own = own_slot();
    uint64_t beyond;
    bool exact;
    if (own == NULL || (!by_the_watch && shared_peek(&unbooked[device].settled) == shared_get(&own->seqlock)) || !reconcile_lock())
        return;
    if (look(device, own, by_the_watch ? BY_THE_WATCH : BY_A_CALL, &beyond, &exact)) {
        uint64_t coming = exact ? 0 : shared_get(&moves[device].expected);
        uint64_t residue = above(beyond, unbooked[device].modules + coming);
        set_residue(device, own, exact, exact ? residue : larger(residue, unbooked[device].residue), 0);
    } else {
        looked(device, false, 0);
    }
    reconcile_unlock();
}

static uint64_t plus(uint64_t bytes, int64_t by)
{
    return by >= 0 || bytes > (uint64_t)-by ? bytes + (uint64_t)by : 0;
}

/* What others have reserved and may have taken already; under the caller's own move. */
static uint64_t of_others(int device, uint64_t own)
{
    return above(shared_get(&moves[device].expected), own);
}

/* Under the lock. By how much it changed: where others move meanwhile, and where nobody tells. */
static void settle_moved(int device, struct region_slot *own, int64_t among_others, int64_t untold, uint64_t expected, uint64_t instead_of)
{
    uint64_t beyond = 0;
    bool exact, told = look(device, own, AFTER_A_MOVE, &beyond, &exact);
    uint64_t least = told ? above(beyond, unbooked[device].modules + (exact ? 0 : of_others(device, expected))) : 0;
    uint64_t residue = plus(unbooked[device].residue, told ? among_others : untold);
    set_residue(device, own, exact, exact ? least : larger(residue, least), instead_of); /* each can only be too small while others move */
}

static void leave_unnamed(int device, uint64_t bytes)
{
    shared_add(&unbooked[device].unnamed, bytes);
    shared_set(&unbooked[device].settled, UINT64_MAX);
}

void reconcile_keep(int device, uint64_t bytes)
{
    memory_rename(&guest.map, device, MEMORY_DATA, MEMORY_MODULE, bytes);
    shared_add(&unbooked[device].kept, bytes);
    leave_unnamed(device, bytes);
}

bool reconcile_gives_back(int device)
{
    struct region_slot *own = own_slot();
    if (shared_get(&unbooked[device].kept) == 0 || own == NULL)
        return false;
    uint64_t before = shared_get(&own->used[device].total);
    reconcile_settle(device, false);
    return shared_get(&own->used[device].total) < before;
}

void reconcile_changed(int device, int64_t by, uint64_t expected)
{
    struct region_slot *own = own_slot();
    if (own == NULL) {
        reconcile_expected(device, expected);
        return;
    }
    if (reconcile_lock()) {
        settle_moved(device, own, by, by, expected, expected);
        reconcile_unlock();
    } else {
        uint64_t most = expected == 0 && by > 0 ? (uint64_t)by : 0;
        if (most > 0)
            backend->charge(&guest.map, device, MEMORY_MODULE, most);
        leave_unnamed(device, expected + most);
    }
    no_longer_expected(device, expected);
}

bool reconcile_has_residue(int device)
{
    return __atomic_load_n(&unbooked[device].residue, __ATOMIC_RELAXED) > 0 || shared_get(&unbooked[device].unnamed) > 0;
}

static bool reserve(int device, uint64_t bytes)
{
    return backend->reserve(&guest.map, device, MEMORY_MODULE, bytes) == GRANTED;
}

bool reconcile_expect(int device, uint64_t bytes)
{
    reconcile_begin(device);
    bool fits = bytes == 0 || reserve(device, bytes) ||
                ((pools_settle(device, true) | reconcile_gives_back(device)) && reserve(device, bytes));
    if (fits)
        shared_add(&moves[device].expected, bytes);
    else
        reconcile_end(device);
    return fits;
}

void reconcile_expected(int device, uint64_t bytes)
{
    if (bytes > 0)
        backend->release(&guest.map, device, MEMORY_MODULE, bytes);
    no_longer_expected(device, bytes);
}

/* The reserved becomes what it turned out to be. Under the lock. */
static bool adjust(int device, uint64_t reserved, uint64_t actual)
{
    if (actual > reserved)
        return reserve(device, actual - reserved);
    if (actual < reserved)
        backend->release(&guest.map, device, MEMORY_MODULE, reserved - actual);
    return true;
}

bool reconcile_claim(int device, uint64_t expected, uint64_t taken, uint64_t most, struct claim *claim)
{
    struct region_slot *own = own_slot();
    uint64_t beyond, stamp, known;
    bool exact;
    *claim = (struct claim){0, 0};
    if (own == NULL) {
        reconcile_expected(device, expected);
        return true;
    }
    if (!reconcile_lock()) {
        claim->lodges = lodging_begins(device, above(most, expected));
        leave_unnamed(device, expected);
        no_longer_expected(device, expected);
        return true;
    }
    bool told = look(device, own, AFTER_A_MOVE, &beyond, &exact);
    known = unbooked[device].modules + unbooked[device].residue;
    if (told)
        taken = exact ? above(beyond, known) : larger(taken, above(beyond, known + of_others(device, expected)));
    uint64_t booked = exact ? taken : larger(taken, expected); /* it may have taken no more than it shares with others */
    stamp = shared_get(&own->seqlock);
    bool fits = adjust(device, expected, booked);
    if (fits) {
        claim->bytes = told ? taken : booked;
        claim->lodges = lodging_begins(device, above(most, claim->bytes));
        shared_add(&unbooked[device].modules, claim->bytes);
        if (exact)
            changed(device, own, stamp);
        if (booked > claim->bytes)
            leave_unnamed(device, booked - claim->bytes);
        no_longer_expected(device, expected);
    }
    looked(device, exact, 0);
    reconcile_unlock();
    return fits;
}

void reconcile_took(int device, uint64_t expected, uint64_t bytes)
{
    if (bytes > expected)
        backend->charge(&guest.map, device, MEMORY_MODULE, bytes - expected);
    else if (bytes < expected)
        backend->release(&guest.map, device, MEMORY_MODULE, expected - bytes);
    shared_add(&unbooked[device].modules, bytes);
    no_longer_expected(device, expected);
}

static uint64_t no_longer_of_modules(int device, uint64_t bytes)
{
    uint64_t had = shared_get(&unbooked[device].modules), held;
    do
        held = bytes < had ? bytes : had;
    while (!shared_swap_if(&unbooked[device].modules, &had, had - held));
    return held;
}

void reconcile_return(int device, const struct claim *claim)
{
    uint64_t bytes = claim->bytes;
    lodging_ends(device, claim->lodges);
    if (bytes == 0)
        return;
    if (reconcile_lock()) {
        backend->release(&guest.map, device, MEMORY_MODULE, no_longer_of_modules(device, bytes));
        reconcile_unlock();
    } else {
        leave_unnamed(device, no_longer_of_modules(device, bytes));
    }
}

void reconcile_doubt(int device, uint64_t bytes)
{
    leave_unnamed(device, no_longer_of_modules(device, bytes));
}

void reconcile_unloaded(int device, const struct claim *claim, int64_t by)
{
    struct region_slot *own = own_slot();
    uint64_t bytes = claim->bytes;
    if (own != NULL && reconcile_lock()) {
        uint64_t held = no_longer_of_modules(device, bytes);
        int64_t more = by + (int64_t)held;
        settle_moved(device, own, (int64_t)held, more < 0 ? more : 0, 0, held);
        reconcile_unlock();
    } else {
        leave_unnamed(device, no_longer_of_modules(device, bytes));
    }
    lodging_ends(device, claim->lodges);
    reconcile_end(device);
}

void reconcile_forget(int device)
{
    if (!reconcile_lock())
        return;
    backend->release(&guest.map, device, MEMORY_MODULE, unbooked[device].modules + unbooked[device].residue + unbooked[device].unnamed);
    lodging_at_most(device, 0);
    memset(&unbooked[device], 0, sizeof unbooked[device]);
    reconcile_unlock();
}
