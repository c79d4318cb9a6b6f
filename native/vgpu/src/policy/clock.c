#include "policy/clock.h"

#include "core/quiet.h"

#include <errno.h>
#include <time.h>

uint64_t clock_monotonic_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

static uint64_t coarse_ns(void)
{
    return clock_read(CLOCK_MONOTONIC_COARSE);
}

/* A signal that the program handles does not shorten what is owed. */
static void sleep_ns(uint64_t ns)
{
    uint64_t until = clock_monotonic_ns() + ns;
    struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000ull), .tv_nsec = (long)(until % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

struct policy_clock policy_clock = {clock_monotonic_ns, coarse_ns, sleep_ns};
