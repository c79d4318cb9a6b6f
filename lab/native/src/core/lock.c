/* Locks in shared memory that survive their holder: robust, process-shared mutexes. The kernel hands a lock whose holder
 * was killed to the next one, who repairs what it guards. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { SECOND = 1000000000, PATIENCE_NS = SECOND / 5 };

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(struct machine_lock), "machine_lock must hold a mutex");

static pthread_mutex_t *mutex_of(struct machine_lock *lock)
{
    return (pthread_mutex_t *)(void *)lock;
}

void lock_make(struct machine_lock *lock)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex_of(lock), &attr);
    pthread_mutexattr_destroy(&attr);
}

/* Who was woken may die before it has the lock, and the others that sleep hear of nothing: nobody sleeps for long without a look. */
bool lock_take(struct machine_lock *lock)
{
    struct timespec until;
    int rc = pthread_mutex_trylock(mutex_of(lock));
    while (rc == EBUSY || rc == ETIMEDOUT) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (until.tv_nsec += PATIENCE_NS) / SECOND;
        until.tv_nsec %= SECOND;
        rc = pthread_mutex_timedlock(mutex_of(lock), &until);
    }
    if (rc != EOWNERDEAD)
        return false;
    pthread_mutex_consistent(mutex_of(lock));
    return true;
}

void lock_give(struct machine_lock *lock)
{
    pthread_mutex_unlock(mutex_of(lock));
}

/* Accounts are written before the sums, so the sums can always be made again. */
static void rebuild_sums(unsigned card)
{
    struct machine_card *c = card_at(card);
    for (unsigned lane = 0; lane < MACHINE_LANES; lane++)
        c->lanes[lane].used_bytes = 0;
    for (unsigned slot = 0; slot < the_machine->process_high && slot < MACHINE_PROCESSES; slot++) {
        const struct machine_account *a = account_at(card, (int)slot);
        if (LOAD(&the_machine->processes[slot].state) != 0 && a->lane < MACHINE_LANES)
            c->lanes[a->lane].used_bytes += a->bytes;
    }
}

void card_lock(unsigned card)
{
    if (lock_take(&card_at(card)->lock))
        rebuild_sums(card);
}

void card_unlock(unsigned card)
{
    lock_give(&card_at(card)->lock);
}
