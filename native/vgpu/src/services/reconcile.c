#include "services/reconcile.h"

#include "core/after_fork.h"
#include "core/log.h"
#include "core/numbers.h"
#include "core/waits.h"
#include "services/process_state.h"
#include "services/nvml.h"
#include "services/blocks.h"
#include "services/pools.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { ATTEMPTS = 4, PATIENCE = 20 };

/* All parts are in the slot's module_size. Only the first two and the last two are under the lock. */
static struct {
    uint64_t residue;
    uint64_t looked_at; /* the slot's seqlock when it was looked at last */
    uint64_t modules; /* claimed by modules, and by contexts for their heaps */
    uint64_t unnamed; /* residue from the next settling on: of those for whom the lock was not to be had, and of data that went */
    uint64_t kept;    /* of data that went, since the last exact look */
    uint64_t lent;    /* residue that a look may take away, and that a module may hold in blocks that data pay for */
} unbooked[REGION_DEVICES];

static pthread_mutex_t unbooked_mutex = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(unbooked);
FORGET_IN_CHILD(unbooked_mutex);

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

void reconcile_after_fork(void)
{
    if (held_for_fork)
        reconcile_unlock();
}

static void no_longer_expected(int device, uint64_t bytes)
{
    moves_expect(device, -(int64_t)bytes);
    moves_end(device);
}

static uint64_t beyond(const struct memory_sample *seen)
{
    return seen->net > 0 ? (uint64_t)seen->net : 0;
}

/* Under the lock. */
static struct memory_sample look(int device, enum asking asking)
{
    unbooked[device].residue += __atomic_exchange_n(&unbooked[device].unnamed, 0, __ATOMIC_SEQ_CST);
    unbooked[device].lent = suballocation_lend(device, unbooked[device].residue); /* before the look: who gives back after it is kept to it */
    struct memory_sample seen = sight(device, asking);
    shared_set(&unbooked[device].looked_at, seen.answer == SAMPLED_EXACTLY ? seen.stamp : UINT64_MAX); /* else it is looked at again */
    return seen;
}

/*
 * Under the lock, after each look and what was made of it. What the residue lost may be a module's in a block that data pay for; where
 * nobody tells, each module pays for all of its own.
 */
static void looked(int device, const struct memory_sample *seen, uint64_t lost)
{
    suballocation_back(device, seen->answer == SAMPLED_NOTHING ? unbooked[device].lent : sub_u64(unbooked[device].lent, lost));
    unbooked[device].lent = 0;
    if (seen->calm)
        suballocation_at_most(device, suballocation_paid_for(device));
    if (seen->answer != SAMPLED_EXACTLY)
        return;
    shared_set(&unbooked[device].kept, 0);
    suballocation_at_most(device, sub_u64(seen->most, shared_get(&unbooked[device].modules) + unbooked[device].residue));
}

/* Who holds the lock may be without a processor: what nobody can do over waits for him. */
static bool lock_patiently(void)
{
    int attempt = 0;
    while (attempt < PATIENCE && !reconcile_lock())
        attempt++;
    return attempt < PATIENCE;
}

struct memory_sample reconcile_sight(int device, bool moving)
{
    struct region_slot *own = process_slot();
    struct memory_sample best = {.answer = SAMPLED_NOTHING};
    for (int attempt = 0; own != NULL && best.answer != SAMPLED_EXACTLY && attempt < (best.known || moving ? ATTEMPTS : PATIENCE); attempt++) {
        if (!reconcile_lock())
            continue;
        struct memory_sample seen = look(device, moving ? AFTER_A_MOVE : BY_A_CALL);
        looked(device, &(struct memory_sample){.answer = SAMPLED_NOTHING}, 0); /* nothing is made of it */
        shared_set(&unbooked[device].looked_at, UINT64_MAX);
        reconcile_unlock();
        if (seen.known)
            best = seen;
        else if (!best.known && listed_bytes(device) == 0) /* else a pool was growing */
            return best;
    }
    if (!best.known && own != NULL && listed_bytes(device) != 0)
        best.answer = SAMPLED_AT_LEAST;
    return best;
}

enum sampled reconcile_growth(const struct memory_sample *before, const struct memory_sample *after, int64_t *by)
{
    bool since = before->stamp == SAMPLED_BEFORE_ALL || before->stamp == after->stamp;
    *by = before->known && after->known ? after->net - before->net : 0;
    if (after->answer != SAMPLED_EXACTLY)
        return after->answer;
    return before->answer == SAMPLED_EXACTLY && since ? SAMPLED_EXACTLY : SAMPLED_AT_LEAST;
}

/* Our own booking is no reason to look again. */
static void changed(int device, struct region_slot *own, uint64_t stamp)
{
    if (unbooked[device].looked_at == stamp)
        shared_set(&unbooked[device].looked_at, shared_get(&own->seqlock));
}

/* gone: of what it loses, what nobody can hold any more. */
static void set_residue(int device, struct region_slot *own, const struct memory_sample *seen, uint64_t residue, uint64_t gone)
{
    uint64_t had = unbooked[device].residue, stamp = shared_get(&own->seqlock);
    if (residue != had)
        log_debug("device %d: %llu bytes that no hook saw", device, (unsigned long long)residue);
    shared_put(&unbooked[device].residue, residue);
    looked(device, seen, sub_u64(sub_u64(had, residue), gone));
    if (residue > had)
        backend->charge(&process_state.map, device, MEMORY_MODULE, residue - had);
    else if (residue < had)
        backend->release(&process_state.map, device, MEMORY_MODULE, had - residue);
    else
        return;
    changed(device, own, stamp);
}

/*
 * Under the lock. What the residue is by a look, where it would be so much without one. While others load and unload, what they reserved
 * may be on the card or not: between the two it stays.
 */
static uint64_t residue_by(int device, const struct memory_sample *seen, uint64_t otherwise)
{
    uint64_t modules = shared_get(&unbooked[device].modules), most = sub_u64(beyond(seen), modules);
    if (seen->answer == SAMPLED_EXACTLY || (seen->calm && otherwise > most))
        return most;
    return max_u64(otherwise, sub_u64(beyond(seen), modules + moves_expected(device)));
}

void reconcile_device(int device, bool by_the_watch)
{
    struct region_slot *own = process_slot();
    if (own == NULL || (!by_the_watch && shared_peek(&unbooked[device].looked_at) == shared_get(&own->seqlock)) || !reconcile_lock())
        return;
    struct memory_sample seen = look(device, by_the_watch ? BY_THE_WATCH : BY_A_CALL);
    set_residue(device, own, &seen, residue_by(device, &seen, unbooked[device].residue), 0);
    reconcile_unlock();
}

static uint64_t plus(uint64_t bytes, int64_t by)
{
    return by >= 0 || bytes > (uint64_t)-by ? bytes + (uint64_t)by : 0;
}

/* What others have reserved and may have taken already; under the caller's own move. */
static uint64_t of_others(int device, uint64_t own)
{
    return sub_u64(moves_expected(device), own);
}

/* Under the lock. By how much it changed: where others move meanwhile, and where nobody tells. */
static void commit_moved(int device, struct region_slot *own, int64_t among_others, int64_t untold, uint64_t gone)
{
    struct memory_sample seen = look(device, AFTER_A_MOVE);
    uint64_t otherwise = plus(unbooked[device].residue, seen.answer == SAMPLED_NOTHING ? untold : among_others);
    set_residue(device, own, &seen, residue_by(device, &seen, otherwise), gone); /* each can only be too small while others move */
}

static void leave_unnamed(int device, uint64_t bytes)
{
    shared_add(&unbooked[device].unnamed, bytes);
    shared_set(&unbooked[device].looked_at, UINT64_MAX);
}

void reconcile_keep(int device, uint64_t bytes)
{
    memory_rename(&process_state.map, device, MEMORY_DATA, MEMORY_MODULE, bytes);
    shared_add(&unbooked[device].kept, bytes);
    leave_unnamed(device, bytes);
}

bool reconcile_gives_back(int device)
{
    struct region_slot *own = process_slot();
    if (shared_get(&unbooked[device].kept) == 0 || own == NULL)
        return false;
    uint64_t before = shared_get(&own->used[device].total);
    reconcile_device(device, false);
    return shared_get(&own->used[device].total) < before;
}

void reconcile_changed(int device, int64_t by)
{
    struct region_slot *own = process_slot();
    suballocation_behind_arrays(device);
    if (own != NULL && lock_patiently()) {
        commit_moved(device, own, by, by, 0);
        reconcile_unlock();
    } else if (own != NULL) {
        if (by > 0)
            backend->charge(&process_state.map, device, MEMORY_MODULE, (uint64_t)by);
        leave_unnamed(device, by > 0 ? (uint64_t)by : 0);
    }
    moves_end(device);
}

bool reconcile_has_residue(int device)
{
    return shared_peek(&unbooked[device].residue) > 0 || shared_get(&unbooked[device].unnamed) > 0;
}

bool reconcile_expect(int device, uint64_t bytes)
{
    moves_begin(device);
    bool fits = bytes == 0 || process_reserve_as(device, MEMORY_MODULE, bytes);
    if (fits)
        moves_expect(device, (int64_t)bytes);
    else
        moves_end(device);
    return fits;
}

void reconcile_expected(int device, uint64_t bytes)
{
    if (bytes > 0)
        backend->release(&process_state.map, device, MEMORY_MODULE, bytes);
    no_longer_expected(device, bytes);
}

/* The reserved becomes what it turned out to be. Under the lock. */
static bool adjust(int device, uint64_t reserved, uint64_t actual)
{
    if (actual > reserved)
        return backend->reserve(&process_state.map, device, MEMORY_MODULE, actual - reserved) == GRANTED;
    if (actual < reserved)
        backend->release(&process_state.map, device, MEMORY_MODULE, reserved - actual);
    return true;
}

bool reconcile_claim(int device, uint64_t expected, uint64_t taken, uint64_t most, struct claim *claim)
{
    struct region_slot *own = process_slot();
    *claim = (struct claim){0, 0};
    if (own == NULL) {
        reconcile_expected(device, expected);
        return true;
    }
    if (!lock_patiently()) {
        claim->lodges = suballocation_moves_in(device, sub_u64(most, expected));
        leave_unnamed(device, expected);
        no_longer_expected(device, expected);
        return true;
    }
    struct memory_sample seen = look(device, AFTER_A_MOVE);
    bool told = seen.answer != SAMPLED_NOTHING, exact = seen.answer == SAMPLED_EXACTLY;
    uint64_t known = shared_get(&unbooked[device].modules) + unbooked[device].residue, stamp = shared_get(&own->seqlock);
    if (told)
        taken = exact ? sub_u64(beyond(&seen), known) : max_u64(taken, sub_u64(beyond(&seen), known + of_others(device, expected)));
    uint64_t booked = exact ? taken : max_u64(taken, expected); /* it may have taken no more than it shares with others */
    bool fits = adjust(device, expected, booked);
    if (fits) {
        claim->bytes = told ? taken : booked;
        claim->lodges = suballocation_moves_in(device, sub_u64(most, claim->bytes));
        shared_add(&unbooked[device].modules, claim->bytes);
        if (exact)
            changed(device, own, stamp);
        if (booked > claim->bytes)
            leave_unnamed(device, booked - claim->bytes);
        no_longer_expected(device, expected);
    }
    looked(device, &seen, 0);
    reconcile_unlock();
    return fits;
}

void reconcile_took(int device, uint64_t expected, uint64_t bytes)
{
    if (bytes > expected)
        backend->charge(&process_state.map, device, MEMORY_MODULE, bytes - expected);
    else if (bytes < expected)
        backend->release(&process_state.map, device, MEMORY_MODULE, expected - bytes);
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
    suballocation_moves_out(device, claim->lodges);
    if (bytes == 0)
        return;
    if (reconcile_lock()) {
        backend->release(&process_state.map, device, MEMORY_MODULE, no_longer_of_modules(device, bytes));
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
    struct region_slot *own = process_slot();
    uint64_t held = claim != NULL ? no_longer_of_modules(device, claim->bytes) : 0;
    bool shared = claim == NULL || suballocation_moves_out(device, claim->lodges); /* what it held may be others', too */
    if (own != NULL && lock_patiently()) {
        shared_put(&unbooked[device].residue, unbooked[device].residue + held);
        commit_moved(device, own, 0, by < -(int64_t)held ? by : -(int64_t)held, shared ? 0 : held);
        reconcile_unlock();
    } else {
        leave_unnamed(device, held);
    }
    moves_end(device);
}

void reconcile_forget(int device)
{
    if (!reconcile_lock())
        return;
    backend->release(&process_state.map, device, MEMORY_MODULE, unbooked[device].modules + unbooked[device].residue + unbooked[device].unnamed);
    suballocation_forget(device);
    memset(&unbooked[device], 0, sizeof unbooked[device]);
    reconcile_unlock();
}
