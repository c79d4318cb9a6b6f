/* Waits for a mutex are measured from their beginning to their end, whatever else wants the processor. */
#include "check.h"
#include "core/waits.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ext_waits counted;

static void *hold(void *milliseconds)
{
    pthread_mutex_lock(&mutex);
    __atomic_store_n((int *)milliseconds + 1, 1, __ATOMIC_SEQ_CST); /* it is held */
    usleep((unsigned)*(int *)milliseconds * 1000);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void while_held_for(int milliseconds, bool bounded, bool *taken)
{
    int holder[2] = {milliseconds, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, hold, holder);
    while (__atomic_load_n(&holder[1], __ATOMIC_SEQ_CST) == 0)
        ;
    *taken = true;
    if (bounded)
        *taken = mutex_take_in_time(&mutex);
    else
        mutex_take(&mutex);
    if (*taken)
        pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
}

static void a_wait_is_counted_in_full(void)
{
    bool taken;
    counted = (struct ext_waits){0};
    mutex_take(&mutex); /* nobody has it: no wait */
    pthread_mutex_unlock(&mutex);
    CHECK_EQUAL(counted.count, 0);
    while_held_for(1000, false, &taken); /* beyond the bound, and it is told as it was */
    CHECK_EQUAL(counted.count, 1);
    CHECK_EQUAL(counted.late, 0);
    CHECK(counted.longest_ns > 2 * LOCK_WAIT_MAX_NS);
    CHECK_EQUAL(counted.total_ns, counted.longest_ns);
}

static void a_bounded_wait_is_given_up_and_counted(void)
{
    bool taken;
    counted = (struct ext_waits){0};
    while_held_for(1000, true, &taken);
    CHECK(!taken);
    CHECK_EQUAL(counted.late, 1);
    CHECK(counted.longest_ns >= LOCK_WAIT_MAX_NS);
    CHECK(mutex_take_in_time(&mutex)); /* it is free again, and nothing is waited for */
    pthread_mutex_unlock(&mutex);
    CHECK_EQUAL(counted.count, 1);
}

/* Eight others burn the processors: what this thread waits for is one of them, and no lock. */
static void time_without_a_processor_is_no_wait(void)
{
    enum { BURNERS = 8 };
    pid_t pids[BURNERS];
    if (access("/proc/thread-self/schedstat", R_OK) != 0)
        return; /* the kernel does not tell */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < BURNERS; i++)
        if ((pids[i] = fork()) == 0)
            for (;;)
                ;
    struct wait wait = wait_begin();
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    volatile unsigned long work = 0;
    for (int i = 0; i < 30000000; i++)
        work++;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t span = (uint64_t)(now.tv_sec - begun.tv_sec) * 1000 * MS + (uint64_t)(now.tv_nsec - begun.tv_nsec);
    CHECK(wait_ns(&wait) < span / 2);
    for (int i = 0; i < BURNERS; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

int main(void)
{
    waits_go_to(&counted);
    a_wait_is_counted_in_full();
    a_bounded_wait_is_given_up_and_counted();
    time_without_a_processor_is_no_wait();
    return check_result("waits");
}
