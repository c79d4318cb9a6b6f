#include "core/waits.h"

#include "core/quiet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_NS 1000000l
#define NAP_NS 10000000l

static struct ext_waits own;
static struct ext_waits *waits = &own;

static void add(struct ext_waits *to, const struct ext_waits *more)
{
    shared_add(&to->count, more->count);
    shared_add(&to->total_ns, more->total_ns);
    shared_add(&to->late, more->late);
    uint64_t longest = shared_get(&to->longest_ns);
    while (more->longest_ns > longest && !shared_swap_if(&to->longest_ns, &longest, more->longest_ns))
        ;
}

/* Other threads may be counting: whoever has seen the old place counts there once more, and only that is lost. */
void waits_go_to(struct ext_waits *shared)
{
    __atomic_store_n(&waits, shared != NULL ? shared : &own, __ATOMIC_RELEASE);
    struct ext_waits before; /* what was waited for before there was a region */
    for (size_t i = 0; i < sizeof own / sizeof(uint64_t); i++)
        ((uint64_t *)&before)[i] = __atomic_exchange_n((uint64_t *)&own + i, 0, __ATOMIC_RELAXED);
    if (shared != NULL)
        add(shared, &before);
}

/* How long this thread could have run so far and had no processor; 0 where the kernel does not tell. */
static uint64_t starved_ns(void)
{
    char text[96];
    int fd = quiet_open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : quiet_read(fd, text, sizeof text - 1);
    if (fd >= 0)
        quiet_close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *second = strchr(text, ' ');
    return second != NULL ? strtoull(second, NULL, 10) : 0;
}

/* Both of one moment: a thread that lost the processor between the two reads begins again. */
struct wait wait_begin(void)
{
    KEEP_ERRNO;
    struct wait moment;
    uint64_t again = starved_ns();
    do {
        moment.starved_ns = again;
        moment.begun_ns = clock_read(CLOCK_MONOTONIC);
        again = starved_ns();
    } while (again != moment.starved_ns);
    return moment;
}

uint64_t wait_ns(const struct wait *wait)
{
    struct wait now = wait_begin();
    uint64_t span = now.begun_ns - wait->begun_ns, starved = now.starved_ns - wait->starved_ns;
    return starved < span ? span - starved : 0;
}

bool wait_is_over(const struct wait *wait)
{
    return clock_read(CLOCK_MONOTONIC) - wait->begun_ns >= LOCK_WAIT_MAX_NS && wait_ns(wait) >= LOCK_WAIT_MAX_NS;
}

static void count(uint64_t ns, bool late)
{
    const struct ext_waits one = {ns, ns, 1, late};
    add(__atomic_load_n(&waits, __ATOMIC_ACQUIRE), &one);
}

void wait_end(const struct wait *wait, bool late)
{
    count(wait_ns(wait), late);
}

static bool take_within(pthread_mutex_t *mutex, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ns;
    if (until.tv_nsec >= 1000000000l)
        until.tv_sec++, until.tv_nsec -= 1000000000l;
    return pthread_mutex_timedlock(mutex, &until) == 0;
}

/* Nearly every wait ends within the first millisecond, which is not worth the questions; the kernel ends it if nobody else does. */
static bool taken_soon(pthread_mutex_t *mutex, uint64_t *ns)
{
    uint64_t begun = clock_read(CLOCK_MONOTONIC);
    bool taken = take_within(mutex, SHORT_NS);
    uint64_t span = clock_read(CLOCK_MONOTONIC) - begun;
    *ns = span < (uint64_t)SHORT_NS ? span : (uint64_t)SHORT_NS;
    return taken;
}

void mutex_take(pthread_mutex_t *mutex)
{
    uint64_t ns;
    if (pthread_mutex_trylock(mutex) == 0)
        return;
    if (!taken_soon(mutex, &ns)) {
        struct wait wait = wait_begin();
        pthread_mutex_lock(mutex);
        ns += wait_ns(&wait);
    }
    count(ns, false);
}

/* In naps, because a deadline by the clock would be missed by whoever had no processor. */
bool mutex_take_in_time(pthread_mutex_t *mutex)
{
    uint64_t ns;
    if (pthread_mutex_trylock(mutex) == 0)
        return true;
    bool taken = taken_soon(mutex, &ns);
    if (!taken) {
        struct wait wait = wait_begin();
        while (!taken && !wait_is_over(&wait))
            taken = take_within(mutex, NAP_NS);
        ns += wait_ns(&wait);
    }
    count(ns, !taken);
    return taken;
}
