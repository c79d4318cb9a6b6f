/* The time of a part of a card. Each processor of a card has a position on the process's axis at which it is done with what green
 * contexts gave it: kernels of contexts that share none run side by side, those that share one after the other. Work for the whole
 * card takes all of them, behind everything.
 *
 * A kernel's blocks go over its processors in waves, one block on each at a time, by which the time on the whole card is stretched:
 * few blocks lose nothing on few processors. */
#define _GNU_SOURCE
#include "green.h"

static struct {
    pthread_mutex_t mutex;
    uint64_t whole;          /* position at which work for the whole card ended, as far as known */
    uint64_t given;          /* how far the axis was given when that was looked at */
    uint64_t done[MOST_SMS];
} cards[MACHINE_CARDS] = {[0 ... MACHINE_CARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

static struct green *green_of_stream(const struct stream *s)
{
    const struct context *c = context_of(s->context);
    return c ? handle_get(K_GREEN, c->green) : NULL;
}

static uint64_t waves(uint64_t blocks, uint64_t sms)
{
    return sms ? (blocks + sms - 1) / sms : blocks;
}

uint64_t green_time(const struct stream *s, uint64_t ns, uint64_t blocks)
{
    const struct green *g = green_of_stream(s);
    uint64_t on_all = g ? waves(blocks, cu.devices[g->part.device].sm_count) : 0;
    if (on_all == 0)
        return ns;
    return (uint64_t)((__uint128_t)ns * waves(blocks, sm_set_size(&g->part.sms)) / on_all);
}

/* card's mutex held: where the last of these processors is done */
static uint64_t latest(unsigned card, const struct sm_set *sms)
{
    uint64_t at = 0;
    for (unsigned sm = 0; sm < MOST_SMS; sm++)
        if (sm_in(sms, sm) && cards[card].done[sm] > at)
            at = cards[card].done[sm];
    return at;
}

/* card's mutex held: whoever gave work since the last look gave it to the whole card */
static void look_for_whole(unsigned card)
{
    uint64_t given = RELAXED(&account_at(card, cu.slot)->submitted_ns);
    if (given != cards[card].given && !RELAXED(&the_machine->overlap))
        cards[card].whole = given;
    cards[card].given = given;
}

uint64_t green_submit(const struct stream *s, unsigned card, uint64_t ns, uint64_t after)
{
    struct green *g = green_of_stream(s);
    if (!g || ns == 0)
        return after;
    pthread_mutex_lock(&cards[card].mutex);
    look_for_whole(card);
    const uint64_t floors[] = {cards[card].whole, latest(card, &g->part.sms), atomic_load(&g->waits)};
    for (int i = 0; i < 3; i++)
        after = floors[i] > after ? floors[i] : after;
    uint64_t end = timeline_submit_beside(card, cu.slot, ns, after);
    for (unsigned sm = 0; sm < MOST_SMS; sm++)
        if (sm_in(&g->part.sms, sm))
            cards[card].done[sm] = end;
    if (end > cards[card].given)
        cards[card].given = end;
    pthread_mutex_unlock(&cards[card].mutex);
    timeline_wait_for_room(card, cu.slot, end);
    return end;
}

uint64_t green_end_of(CUgreenCtx green)
{
    struct green *g = handle_get(K_GREEN, green);
    if (!g)
        return 0;
    unsigned card = cu.devices[g->part.device].card;
    pthread_mutex_lock(&cards[card].mutex);
    uint64_t end = latest(card, &g->part.sms);
    pthread_mutex_unlock(&cards[card].mutex);
    return end;
}

struct wait_for { CUcontext context; uint64_t position; };

static void wait_if_of(void *object, void *arg)
{
    struct green *g = object;
    const struct wait_for *what = arg;
    const struct context *c = context_of(g->context);
    uint64_t waits = atomic_load(&g->waits);
    bool concerned = c && (g->context == what->context || c->parent == what->context);
    while (concerned && waits < what->position && !atomic_compare_exchange_weak(&g->waits, &waits, what->position))
        ;
}

void green_wait_for(CUcontext context, uint64_t position)
{
    struct wait_for what = {context, position};
    handle_each(K_GREEN, wait_if_of, &what);
}
