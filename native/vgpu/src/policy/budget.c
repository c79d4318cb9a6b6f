#include "policy/budget.h"

#define SHORTEST_CAP_NS 2000000ll
#define CAP_WINDOW_NS 40000000ll /* four rounds of the arbiter: what is earned while others have their turn is not lost */
#define LONGEST_GAP_NS 3600000000000ull /* a region that lay about for longer owes nothing from then */
#define CLOCK_SKEW_NS 1000000000ull     /* further back than this the clock itself began anew */
#define LARGEST_BALANCE_NS 3600000000000ll
#define LEAST_EARNED_NS 100 /* keeps what rounding loses below a percent of a percent point */
#define LONGEST_WAIT_NS 1000000000ull
#define SHORTEST_WAIT_NS 1000ull

int64_t budget_cap(uint64_t percent)
{
    int64_t share = CAP_WINDOW_NS * (int64_t)percent / 100;
    return share > SHORTEST_CAP_NS ? share : SHORTEST_CAP_NS;
}

/* After a restart of the machine the clock begins anew, and a fresh region has none: begin with an even balance. */
static void begin(struct ext_device *device, uint64_t last, uint64_t now)
{
    if (!shared_swap_if(&device->last_refill_ns, &last, now))
        return;
    if (shared_get(&device->charged_ns) > INT64_MAX / 2)
        shared_set(&device->charged_ns, 0);
    shared_set(&device->credit_ns, shared_get(&device->charged_ns) + 1);
}

/* Nobody owes or has saved an hour of GPU time: such a balance is damage, and compute limits fail open. */
static bool balance_is_absurd(const struct ext_device *device)
{
    int64_t balance;
    return __builtin_sub_overflow(shared_get(&device->credit_ns), shared_get(&device->charged_ns), &balance) ||
           balance > LARGEST_BALANCE_NS || balance < -LARGEST_BALANCE_NS;
}

void budget_refill(struct ext_device *device, uint64_t percent, uint64_t now)
{
    uint64_t last = shared_get(&device->last_refill_ns);
    if (balance_is_absurd(device) || last == 0 || now + CLOCK_SKEW_NS < last || now > last + LONGEST_GAP_NS) {
        begin(device, last, now);
        return;
    }
    /* Only the time that whole nanoseconds of credit took is used up: fractions would add up to nothing if one looks often. */
    int64_t earned = now > last ? (int64_t)((now - last) * percent / 100) : 0, cap = budget_cap(percent);
    uint64_t used = ((uint64_t)earned * 100 + percent - 1) / percent;
    if (earned < LEAST_EARNED_NS || !shared_swap_if(&device->last_refill_ns, &last, last + used))
        return; /* nothing yet, or somebody else brought it up to date */
    int64_t credit = shared_get(&device->credit_ns), raised;
    do {
        int64_t most = shared_get(&device->charged_ns) + cap;
        raised = credit + earned < most ? credit + earned : most;
        if (raised <= credit)
            return;
    } while (!shared_swap_if(&device->credit_ns, &credit, raised));
}

uint64_t budget_wait_ns(const struct ext_device *device, uint64_t percent, int64_t ticket)
{
    int64_t missing;
    if (__builtin_sub_overflow(ticket, shared_get(&device->credit_ns), &missing) || missing == INT64_MAX)
        return LONGEST_WAIT_NS; /* damage */
    missing++;
    if (missing <= 0 || percent == 0)
        return 0;
    uint64_t wait = ((uint64_t)missing * 100 + percent - 1) / percent;
    wait = wait > SHORTEST_WAIT_NS ? wait : SHORTEST_WAIT_NS; /* what is slept too long stays as credit */
    return wait < LONGEST_WAIT_NS ? wait : LONGEST_WAIT_NS;
}

/* A time that no probe could have set is of a clock that began anew, or damage. What should be done is taken to be. */
static bool runs(const struct ext_device *device, uint64_t until, uint64_t now, uint64_t longest_ns)
{
    uint64_t ends = shared_peek(&device->probe_ends_ns);
    return until > now && until <= now + longest_ns + CLOCK_SKEW_NS && (ends == 0 || ends > now);
}

bool budget_probe_runs(const struct ext_device *device, uint64_t now)
{
    return runs(device, shared_peek(&device->probe_until_ns), now, 0);
}

bool budget_probe_begin(struct ext_device *device, uint64_t now, uint64_t longest_ns)
{
    uint64_t until = shared_get(&device->probe_until_ns);
    if (runs(device, until, now, longest_ns) || !shared_swap_if(&device->probe_until_ns, &until, now + longest_ns))
        return false;
    shared_set(&device->probe_ends_ns, 0);
    return true;
}

void budget_probe_launched(struct ext_device *device, uint64_t ends)
{
    shared_set(&device->probe_ends_ns, ends);
}

void budget_probe_renew(struct ext_device *device, uint64_t until)
{
    shared_set(&device->probe_until_ns, until);
}
