/* The time of a lane: which process it serves at which moment.
 *
 * A process's work on a card is one axis in ns: submitted_ns is how much it gave, served_ns how much was done. A lane serves those
 * with submitted > served, one at a time, a slice each in turn. Nobody has to run for that: whoever holds the card's lock brings
 * the lane up to now (lane_advance), so the books are the same whoever looks and whenever.
 *
 * Giving work is two atomic additions while the lane is surely busy with this process (now < busy_until); only work that finds
 * the process idle takes the lock, because it must not be served before it was given. */
#define _GNU_SOURCE
#include "core.h"

#define DEFAULT_SLICE_NS 2000000ull
#define DEFAULT_DEPTH 1024u
#define MAX_DEPTH 1024u
#define LIVENESS_NS 50000000ull  /* real time between looks whether a process that is being served still lives */
#define PREDICT_SLICES 64
#define CLOCK_JUMP_NS 1000000000ull

/* What this process knows of its own work on each card. */
static struct {
    _Alignas(64) _Atomic uint64_t busy_until; /* machine time before which this process's work cannot have ended */
    _Atomic uint64_t served;                  /* served_ns was at least this */
    _Atomic uint64_t launches;
    _Atomic uint64_t ends[MAX_DEPTH];         /* positions of the last launches */
} own[MACHINE_CARDS];

void timeline_reset(void)
{
    for (unsigned c = 0; c < MACHINE_CARDS; c++) {
        atomic_store(&own[c].busy_until, 0);
        atomic_store(&own[c].served, 0);
        atomic_store(&own[c].launches, 0);
    }
}

/* ---- busy time in windows, for utilisation ---- */

void busy_add(uint64_t *buckets, uint64_t *epoch, uint64_t from, uint64_t ns)
{
    while (ns > 0) {
        uint64_t number = from / MACHINE_BUCKET_NS;
        uint64_t left = (number + 1) * MACHINE_BUCKET_NS - from;
        uint64_t part = ns < left ? ns : left;
        if (number > *epoch) {
            for (uint64_t n = number - *epoch > MACHINE_BUCKETS ? number - MACHINE_BUCKETS + 1 : *epoch + 1; n <= number; n++)
                buckets[n % MACHINE_BUCKETS] = 0;
            *epoch = number;
        }
        if (*epoch - number < MACHINE_BUCKETS)
            buckets[number % MACHINE_BUCKETS] += part;
        from += part;
        ns -= part;
    }
}

uint64_t busy_window(const uint64_t *buckets, uint64_t epoch, uint64_t now, uint64_t window)
{
    uint64_t newest = now / MACHINE_BUCKET_NS, sum = 0;
    uint64_t count = window / MACHINE_BUCKET_NS;
    for (uint64_t n = newest; n + count > newest && n <= newest; n--)
        if (n <= epoch && epoch - n < MACHINE_BUCKETS)
            sum += buckets[n % MACHINE_BUCKETS];
    return sum < window ? sum : window;
}

/* ---- serving ---- */

static uint64_t backlog(const struct machine_account *a)
{
    uint64_t given = RELAXED(&a->submitted_ns);
    return given > a->served_ns ? given - a->served_ns : 0;
}

static bool wants(unsigned card, unsigned lane, unsigned slot)
{
    const struct machine_account *a = account_at(card, (int)slot);
    return LOAD(&the_machine->processes[slot].state) != 0 && a->lane == lane && backlog(a) > 0;
}

/* The work of a process that was killed is gone with it. */
static void drop_the_dead(unsigned card, unsigned lane)
{
    static _Atomic uint64_t looked[MACHINE_CARDS];
    uint64_t t = real_now();
    if (t - atomic_load_explicit(&looked[card], memory_order_relaxed) < LIVENESS_NS)
        return;
    atomic_store_explicit(&looked[card], t, memory_order_relaxed);
    for (unsigned slot = 0; slot < the_machine->process_high; slot++) {
        const struct machine_process *p = &the_machine->processes[slot];
        if (wants(card, lane, slot) && !identity_alive(p->pid, p->start_ticks, p->pid_namespace)) {
            struct machine_account *a = account_at(card, (int)slot);
            STORE(&a->submitted_ns, a->served_ns);
        }
    }
}

static void serve(unsigned card, unsigned slot, uint64_t from, uint64_t ns)
{
    struct machine_account *a = account_at(card, (int)slot);
    uint64_t before = a->served_ns;
    SET(&a->served_ns, before + ns);
    busy_add(a->bucket_busy_ns, &a->bucket_epoch, from, ns);
    bool in_order = true;
    for (uint32_t i = a->mark_tail; i != a->mark_head; i++) {
        struct machine_mark *mark = &the_machine->marks[slot][card][i % MACHINE_MARKS];
        if (mark->time_ns == 0 && mark->position_ns <= before + ns)
            mark->time_ns = from + (mark->position_ns > before ? mark->position_ns - before : 0);
        if (mark->time_ns == 0)
            in_order = false;
        else if (in_order)
            a->mark_tail = i + 1;
    }
}

static uint64_t slice_ns(void)
{
    return the_machine->slice_ns ? the_machine->slice_ns : DEFAULT_SLICE_NS;
}

/* A client of MPS that may use a portion of the threads gets that portion of the time: what it ran it pays with a rest. Its runs are
 * short, because a portion of the threads is had at every moment. */
static uint64_t longest_run(const struct machine_account *a)
{
    return a->mps_percent ? slice_ns() / 4 : slice_ns();
}

static uint64_t rest_after(const struct machine_account *a, uint64_t ran)
{
    return a->mps_percent ? ran * (100 - a->mps_percent) / a->mps_percent : 0;
}

/* The process to serve next: the current one while its slice lasts, else the next in turn. -1: nobody may. `again`: when to ask. */
static int next_in_turn(unsigned card, unsigned lane, const uint32_t *active, unsigned count, uint64_t *again)
{
    struct machine_lane *l = &card_at(card)->lanes[lane];
    int after = -1, first = -1;
    for (unsigned i = 0; i < count; i++) {
        if (!wants(card, lane, active[i]))
            continue;
        uint64_t rested = account_at(card, (int)active[i])->rest_until_ns;
        if (rested > l->now_ns) {
            *again = rested < *again ? rested : *again;
            continue;
        }
        if (active[i] == l->current && l->slice_left_ns > 0)
            return (int)active[i];
        if (first < 0)
            first = (int)active[i];
        if (after < 0 && l->current != MACHINE_NONE && active[i] > l->current)
            after = (int)active[i];
    }
    int chosen = after >= 0 ? after : first;
    if (chosen >= 0) {
        l->current = (uint32_t)chosen;
        l->slice_left_ns = longest_run(account_at(card, chosen));
    }
    return chosen;
}

static unsigned gather(unsigned card, unsigned lane, uint32_t *active)
{
    unsigned count = 0;
    for (unsigned slot = 0; slot < the_machine->process_high && slot < MACHINE_PROCESSES; slot++)
        if (wants(card, lane, slot))
            active[count++] = slot;
    return count;
}

void lane_advance(unsigned card, unsigned lane, uint64_t now)
{
    struct machine_lane *l = &card_at(card)->lanes[lane];
    if (!l->started || l->now_ns > now + CLOCK_JUMP_NS) {
        l->now_ns = now;
        l->started = 1;
        l->current = MACHINE_NONE;
    }
    if (l->now_ns >= now)
        return;
    uint32_t active[MACHINE_PROCESSES];
    unsigned count = gather(card, lane, active);
    if (count > 0)
        drop_the_dead(card, lane);
    while (l->now_ns < now && count > 0) {
        uint64_t again = UINT64_MAX;
        int slot = next_in_turn(card, lane, active, count, &again);
        if (slot < 0 && again < now) { /* all who want rest */
            SET(&l->now_ns, again);
            continue;
        }
        if (slot < 0)
            break;
        struct machine_account *served = account_at(card, slot);
        uint64_t run = backlog(served);
        uint64_t room = now - l->now_ns;
        run = run < room ? run : room;
        if (count > 1 || served->mps_percent)
            run = run < l->slice_left_ns ? run : l->slice_left_ns;
        serve(card, (unsigned)slot, l->now_ns, run);
        busy_add(l->bucket_busy_ns, &l->bucket_epoch, l->now_ns, run);
        SET(&l->busy_ns, l->busy_ns + run);
        l->slice_left_ns -= run < l->slice_left_ns ? run : l->slice_left_ns;
        SET(&l->now_ns, l->now_ns + run);
        served->rest_until_ns = l->now_ns + rest_after(served, run);
    }
    SET(&l->now_ns, now);
}

/* The time at which the work at `position` will be done if nobody comes or goes; at most PREDICT_SLICES slices ahead. */
uint64_t lane_predict(unsigned card, int slot, uint64_t position)
{
    const struct machine_account *mine = account_at(card, slot);
    const struct machine_lane *l = &card_at(card)->lanes[mine->lane];
    uint32_t active[MACHINE_PROCESSES];
    uint64_t left[MACHINE_PROCESSES];
    unsigned count = gather(card, mine->lane, active), turn = 0;
    uint64_t at = l->now_ns, need = position > mine->served_ns ? position - mine->served_ns : 0;
    uint64_t longest = longest_run(mine), rest = rest_after(mine, need > longest ? need - longest : 0);
    uint64_t earliest = (mine->rest_until_ns > at ? mine->rest_until_ns : at) + need + rest;
    if (count <= 1)
        return earliest;
    for (unsigned i = 0; i < count; i++) {
        left[i] = backlog(account_at(card, (int)active[i]));
        if (active[i] == l->current)
            turn = i;
    }
    uint64_t slice = active[turn] == l->current && l->slice_left_ns ? l->slice_left_ns : slice_ns();
    if (active[turn] == l->current && !l->slice_left_ns)
        turn = (turn + 1) % count;
    for (unsigned n = 0; n < PREDICT_SLICES && need > 0; n++) {
        for (unsigned skip = 0; left[turn] == 0 && skip < count; skip++)
            turn = (turn + 1) % count;
        uint64_t run = left[turn] < slice ? left[turn] : slice;
        if (active[turn] == (uint32_t)slot) {
            run = run < need ? run : need;
            need -= run;
        }
        left[turn] -= run;
        at += run;
        turn = (turn + 1) % count;
        slice = slice_ns();
    }
    return mine->mps_percent && at < earliest ? earliest : at;
}

/* ---- the process's own side ---- */

static void learn(unsigned card, int slot, uint64_t now)
{
    const struct machine_account *a = account_at(card, slot);
    atomic_store_explicit(&own[card].served, a->served_ns, memory_order_relaxed);
    atomic_store_explicit(&own[card].busy_until, now + backlog(a), memory_order_relaxed);
}

/* The card has a queue of limited depth: a launch that finds it full waits for the oldest. */
void timeline_wait_for_room(unsigned card, int slot, uint64_t end)
{
    uint32_t depth = the_machine->queue_depth;
    depth = depth == 0 ? DEFAULT_DEPTH : depth < MAX_DEPTH ? depth : MAX_DEPTH;
    uint64_t n = atomic_fetch_add_explicit(&own[card].launches, 1, memory_order_relaxed);
    if (n >= depth) {
        uint64_t oldest = atomic_load_explicit(&own[card].ends[(n - depth) % MAX_DEPTH], memory_order_relaxed);
        if (oldest > atomic_load_explicit(&own[card].served, memory_order_relaxed))
            timeline_wait(card, slot, oldest);
    }
    atomic_store_explicit(&own[card].ends[n % MAX_DEPTH], end, memory_order_relaxed);
}

uint64_t timeline_submit_beside(unsigned card, int slot, uint64_t ns, uint64_t after)
{
    struct machine_account *a = account_at(card, slot);
    card_lock(card);
    uint64_t now = machine_now();
    lane_advance(card, a->lane, now);
    uint64_t end = (after > a->served_ns ? after : a->served_ns) + ns;
    for (uint64_t given = RELAXED(&a->submitted_ns); end > given;)
        if (__atomic_compare_exchange_n(&a->submitted_ns, &given, end, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            break;
    learn(card, slot, now);
    card_unlock(card);
    return end;
}

uint64_t timeline_submit(unsigned card, int slot, uint64_t ns, uint64_t after)
{
    struct machine_account *a = account_at(card, slot);
    if (ns == 0)
        return RELAXED(&the_machine->overlap) ? after : RELAXED(&a->submitted_ns);
    uint64_t end;
    if (RELAXED(&the_machine->overlap)) {
        end = timeline_submit_beside(card, slot, ns, after);
    } else {
        uint64_t now = machine_now(); /* one look at the clock: a lane that others have brought past it only begins this work later */
        if (now < atomic_load_explicit(&own[card].busy_until, memory_order_relaxed)) {
            end = ADD(&a->submitted_ns, ns) + ns;
            atomic_fetch_add_explicit(&own[card].busy_until, ns, memory_order_relaxed);
        } else {
            card_lock(card);
            lane_advance(card, a->lane, now);
            end = ADD(&a->submitted_ns, ns) + ns;
            learn(card, slot, now);
            card_unlock(card);
        }
    }
    timeline_wait_for_room(card, slot, end);
    return end;
}

/* Whether the work up to `position` is done; `when`, where asked for, is the moment to look again. */
static bool is_done(unsigned card, int slot, uint64_t position, uint64_t *when)
{
    if (position <= atomic_load_explicit(&own[card].served, memory_order_relaxed))
        return true;
    card_lock(card);
    uint64_t now = machine_now();
    lane_advance(card, account_at(card, slot)->lane, now);
    learn(card, slot, now);
    bool done = account_at(card, slot)->served_ns >= position;
    if (when && !done) {
        uint64_t end = lane_predict(card, slot, position);
        *when = end > now ? end : now + 1;
    }
    card_unlock(card);
    return done;
}

bool timeline_done(unsigned card, int slot, uint64_t position)
{
    return is_done(card, slot, position, NULL);
}

bool timeline_wait(unsigned card, int slot, uint64_t position)
{
    while (!card_lost(card)) {
        uint64_t when;
        if (is_done(card, slot, position, &when))
            return true;
        machine_sleep_until(when);
    }
    return false;
}

/* ---- the work of others ---- */

/* What a process that has ended left undone, nobody waits for. */
static bool is_done_elsewhere(unsigned card, int slot, uint64_t generation, uint64_t position, uint64_t *when)
{
    const struct machine_process *p = &the_machine->processes[slot];
    const struct machine_account *a = account_at(card, slot);
    card_lock(card);
    uint64_t now = machine_now();
    bool done = !process_live(p) || RELAXED(&p->generation) != generation || a->lane >= MACHINE_LANES;
    if (!done) {
        lane_advance(card, a->lane, now);
        done = a->served_ns >= position || backlog(a) == 0;
    }
    if (!done) {
        uint64_t end = lane_predict(card, slot, position);
        end = end < now + LIVENESS_NS ? end : now + LIVENESS_NS; /* it may be killed meanwhile */
        *when = end > now ? end : now + 1;
    }
    card_unlock(card);
    return done;
}

bool timeline_done_elsewhere(unsigned card, int slot, uint64_t generation, uint64_t position)
{
    uint64_t when;
    return is_done_elsewhere(card, slot, generation, position, &when);
}

bool timeline_wait_elsewhere(unsigned card, int slot, uint64_t generation, uint64_t position)
{
    while (!card_lost(card)) {
        uint64_t when;
        if (is_done_elsewhere(card, slot, generation, position, &when))
            return true;
        machine_sleep_until(when);
    }
    return false;
}

bool timeline_mark(unsigned card, int slot, uint64_t position, uint32_t *mark, uint64_t *time)
{
    struct machine_account *a = account_at(card, slot);
    card_lock(card);
    uint64_t now = machine_now();
    lane_advance(card, a->lane, now);
    bool placed = true;
    *time = a->served_ns >= position ? now : 0;
    if (*time == 0) {
        placed = a->mark_head - a->mark_tail < MACHINE_MARKS;
        if (placed) {
            *mark = a->mark_head;
            the_machine->marks[slot][card][a->mark_head % MACHINE_MARKS] = (struct machine_mark){.position_ns = position};
            a->mark_head++;
        }
    }
    card_unlock(card);
    return placed;
}

uint64_t timeline_mark_time(unsigned card, int slot, uint32_t mark, uint64_t position)
{
    card_lock(card);
    lane_advance(card, account_at(card, slot)->lane, machine_now());
    const struct machine_mark *m = &the_machine->marks[slot][card][mark % MACHINE_MARKS];
    uint64_t time = m->position_ns == position ? m->time_ns : 0;
    card_unlock(card);
    return time;
}
