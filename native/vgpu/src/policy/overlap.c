#include "policy/overlap.h"

#include "core/numbers.h"
#include "core/waits.h"

#include <string.h>

#define LEASE_NS 1000000000ull
#define SHORTEST_LOOK_NS 20000ull

/* The stream's entry, or the one whose work was over first. */
static struct overlap_stream *entry_of(struct overlap *overlap, uint64_t stream)
{
    struct overlap_stream *oldest = &overlap->streams[0];
    for (int i = 0; i < OVERLAP_STREAMS; i++) {
        struct overlap_stream *entry = &overlap->streams[i];
        if (entry->stream == stream)
            return entry;
        if (entry->tail_ns < oldest->tail_ns)
            oldest = entry;
    }
    *oldest = (struct overlap_stream){.stream = stream};
    return oldest;
}

/* A launch on the legacy stream waits for all others, and they for it. */
static uint64_t start_of(struct overlap *overlap, uint64_t stream, uint64_t now)
{
    return max_u64(now, stream == OVERLAP_LEGACY ? overlap->busy_until_ns : entry_of(overlap, stream)->tail_ns);
}

static void place_at(struct overlap *overlap, uint64_t stream, uint64_t now, uint64_t start, uint64_t cost, struct overlap_place *place)
{
    uint64_t end = start + cost, busy = max_u64(now, overlap->busy_until_ns);
    *place = (struct overlap_place){stream, now, 0, start, cost, end > busy ? (int64_t)(end - busy) : 0, false};
    if (now > overlap->busy_until_ns) {
        overlap->idle_from_ns = overlap->busy_until_ns;
        overlap->idle_until_ns = now;
    }
    overlap->busy_until_ns = max_u64(busy, end);
    if (stream == OVERLAP_LEGACY) {
        for (int i = 0; i < OVERLAP_STREAMS; i++)
            overlap->streams[i].tail_ns = max_u64(overlap->streams[i].tail_ns, end);
        return;
    }
    struct overlap_stream *entry = entry_of(overlap, stream);
    entry->tail_ns = end;
    place->number = ++entry->launches;
}

/* Ends in a far future are of a clock that began anew. */
static void believe(struct overlap *overlap, uint64_t now)
{
    const uint64_t longest = 3600000000000ull;
    if (overlap->busy_until_ns > now + longest || overlap->slice_end_ns > now + longest) {
        overlap->busy_until_ns = overlap->slice_end_ns = 0;
        memset(overlap->streams, 0, sizeof overlap->streams);
    }
}

enum overlap_verdict overlap_ask(struct overlap *overlap, uint64_t stream, uint64_t now, uint64_t cost, struct overlap_place *place,
                                 uint64_t *wait)
{
    mutex_take(&overlap->lock);
    believe(overlap, now);
    enum overlap_verdict verdict = OVERLAP_LEAD;
    uint64_t start = start_of(overlap, stream, now);
    if (start < overlap->slice_end_ns) {
        place_at(overlap, stream, now, start, cost, place);
        verdict = OVERLAP_GO;
    } else if (overlap->leader_until_ns > now && overlap->leader_until_ns < now + 3 * LEASE_NS) {
        *wait = overlap->opens_ns > now + SHORTEST_LOOK_NS ? overlap->opens_ns - now : SHORTEST_LOOK_NS;
        verdict = OVERLAP_WAIT;
    } else {
        overlap->leader_until_ns = now + LEASE_NS;
        overlap->opens_ns = now;
    }
    pthread_mutex_unlock(&overlap->lock);
    return verdict;
}

void overlap_expect(struct overlap *overlap, uint64_t opens_ns)
{
    mutex_take(&overlap->lock);
    overlap->opens_ns = opens_ns;
    overlap->leader_until_ns = opens_ns + LEASE_NS;
    pthread_mutex_unlock(&overlap->lock);
}

void overlap_open(struct overlap *overlap, uint64_t stream, uint64_t now, uint64_t cost, struct overlap_place *place)
{
    mutex_take(&overlap->lock);
    uint64_t start = start_of(overlap, stream, now);
    place_at(overlap, stream, now, start, cost, place);
    overlap->slice_end_ns = start + max_u64(cost, OVERLAP_SLICE_NS);
    overlap->leader_until_ns = 0;
    pthread_mutex_unlock(&overlap->lock);
}

void overlap_give_up(struct overlap *overlap)
{
    mutex_take(&overlap->lock);
    overlap->leader_until_ns = 0;
    pthread_mutex_unlock(&overlap->lock);
}

/* The latest end of what other streams have, by all that is known. */
static uint64_t others_end(const struct overlap *overlap, uint64_t stream)
{
    uint64_t latest = 0;
    for (int i = 0; i < OVERLAP_STREAMS; i++)
        if (overlap->streams[i].stream != stream)
            latest = max_u64(latest, overlap->streams[i].tail_ns);
    return latest;
}

/* Moves the expected ends to where this launch's was found to be; how much longer or shorter the device is busy by that. */
static int64_t expect_anew(struct overlap *overlap, const struct overlap_place *place, uint64_t duration)
{
    int64_t difference = 0;
    uint64_t expected = place->start_ns + place->cost_ns, start = place->start_ns;
    struct overlap_stream *own = place->stream == OVERLAP_LEGACY ? NULL : entry_of(overlap, place->stream);
    if (own != NULL && own->measured != 0 && own->measured + 1 == place->number)
        start = max_u64(place->launched_ns, own->measured_end_ns); /* better than what was expected of the one before */
    uint64_t end = start + duration;
    if (end > expected && end > overlap->busy_until_ns) {
        difference = (int64_t)(end - max_u64(expected, overlap->busy_until_ns));
        overlap->busy_until_ns = end;
    } else if (end < expected && overlap->busy_until_ns == expected) {
        uint64_t busy = max_u64(end, others_end(overlap, place->stream));
        int64_t shorter = busy < expected ? (int64_t)(expected - busy) : 0;
        difference = -(shorter < place->extension ? shorter : place->extension);
        overlap->busy_until_ns = expected - (uint64_t)-difference;
    }
    if (end > overlap->idle_from_ns && start < overlap->idle_until_ns) {
        uint64_t until = end < overlap->idle_until_ns ? end : overlap->idle_until_ns;
        difference += (int64_t)(until - overlap->idle_from_ns);
        overlap->idle_from_ns = until;
    }
    if (own != NULL && own->tail_ns == expected)
        own->tail_ns = end;
    if (own != NULL) {
        own->measured = place->number;
        own->measured_end_ns = end;
    }
    return difference;
}

int64_t overlap_measured(struct overlap *overlap, const struct overlap_place *place, uint64_t duration, uint64_t end_ns)
{
    mutex_take(&overlap->lock);
    int64_t difference = expect_anew(overlap, place, duration);
    if (place->all_measured)
        difference = (int64_t)coverage_add(&overlap->measured, end_ns > duration ? end_ns - duration : 0, end_ns) - place->extension;
    pthread_mutex_unlock(&overlap->lock);
    return difference;
}

/* ---- the union of intervals ---- */

/* How much of the part that both have is idle in the span; where only its sum is known, idle time is taken to be spread evenly. */
static uint64_t idle_part(const struct span *span, uint64_t from, uint64_t until)
{
    uint64_t length = span->until_ns - span->from_ns, idle = length - span->busy_ns;
    uint64_t common = min_u64(until, span->until_ns) - max_u64(from, span->from_ns);
    return idle == 0 ? 0 : (uint64_t)((double)idle * (double)common / (double)length);
}

static void close_up(struct coverage *coverage, unsigned first, unsigned removed)
{
    memmove(&coverage->spans[first], &coverage->spans[first + removed],
            (coverage->count - first - removed) * sizeof *coverage->spans);
    coverage->count -= removed;
}

static void make_room(struct coverage *coverage)
{
    struct span *oldest = coverage->spans;
    if (coverage->count < COVERAGE_SPANS)
        return;
    oldest[1].from_ns = oldest[0].from_ns;
    oldest[1].busy_ns += oldest[0].busy_ns;
    close_up(coverage, 0, 1);
}

uint64_t coverage_add(struct coverage *coverage, uint64_t from_ns, uint64_t until_ns)
{
    if (until_ns <= from_ns)
        return 0;
    make_room(coverage);
    unsigned first = 0;
    while (first < coverage->count && coverage->spans[first].until_ns < from_ns)
        first++;
    /* From here on all that it touches become one span with it. */
    struct span one = {from_ns, until_ns, 0};
    uint64_t fresh = until_ns - from_ns, reached = first;
    for (; reached < coverage->count && coverage->spans[reached].from_ns <= until_ns; reached++) {
        const struct span *span = &coverage->spans[reached];
        uint64_t common = min_u64(until_ns, span->until_ns) - max_u64(from_ns, span->from_ns);
        fresh -= common - idle_part(span, from_ns, until_ns);
        one.from_ns = min_u64(one.from_ns, span->from_ns);
        one.until_ns = max_u64(one.until_ns, span->until_ns);
        one.busy_ns += span->busy_ns;
    }
    one.busy_ns += fresh;
    if (reached == first) {
        memmove(&coverage->spans[first + 1], &coverage->spans[first], (coverage->count - first) * sizeof *coverage->spans);
        coverage->count++;
    } else {
        close_up(coverage, first + 1, (unsigned)reached - first - 1);
    }
    coverage->spans[first] = one;
    return fresh;
}
