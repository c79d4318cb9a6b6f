#include "policy/coverage.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How much of the part that both have is idle in the span; where only its sum is known, idle time is taken to be spread evenly. */
static uint64_t idle_part(const struct span *span, uint64_t from, uint64_t until)
{
    uint64_t length = span->until_ns - span->from_ns, idle = length - span->busy_ns;
    uint64_t common = earlier(until, span->until_ns) - later(from, span->from_ns);
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
        uint64_t common = earlier(until_ns, span->until_ns) - later(from_ns, span->from_ns);
        fresh -= common - idle_part(span, from_ns, until_ns);
        one.from_ns = earlier(one.from_ns, span->from_ns);
        one.until_ns = later(one.until_ns, span->until_ns);
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
