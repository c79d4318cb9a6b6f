#include "core/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PAUSE_NS 20000ull
#define LONGEST_PAUSE_NS 200000ull /* many short looks: under contention a rare one would miss its moment again and again */

static int classic_locks; /* 1 once the kernel refused open-file-description locks */
static uint64_t longest_wait_ns;

static int command(int ofd, int classic)
{
    return __atomic_load_n(&classic_locks, __ATOMIC_RELAXED) ? classic : ofd;
}

static int set_lock(int fd, short type, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    int rc = fcntl(fd, command(F_OFD_SETLK, F_SETLK), &range);
    if (rc != 0 && errno == EINVAL && !classic_locks) {
        __atomic_store_n(&classic_locks, 1, __ATOMIC_RELAXED);
        rc = fcntl(fd, F_SETLK, &range);
    }
    return rc;
}

enum lock_verdict lock_try(int fd, uint64_t start, uint64_t bytes)
{
    if (set_lock(fd, F_WRLCK, start, bytes) == 0)
        return LOCK_TAKEN;
    return errno == EAGAIN || errno == EACCES || errno == EINTR ? LOCK_BUSY : LOCK_BROKEN;
}

static void pause_ns(uint64_t ns)
{
    struct timespec span = {.tv_sec = 0, .tv_nsec = (long)ns};
    nanosleep(&span, NULL);
}

enum lock_verdict lock_wait(int fd, uint64_t start, uint64_t bytes)
{
    uint64_t waited = 0, step = FIRST_PAUSE_NS;
    enum lock_verdict verdict;
    while ((verdict = lock_try(fd, start, bytes)) == LOCK_BUSY && waited < LOCK_WAIT_MAX_NS) {
        /* Different processes pause differently, so that they do not march in step. */
        uint64_t jitter = ((uint64_t)getpid() * 2654435761u + waited) % (step / 2 + 1);
        uint64_t span = step / 2 + jitter;
        if (span > LOCK_WAIT_MAX_NS - waited)
            span = LOCK_WAIT_MAX_NS - waited;
        pause_ns(span);
        waited += span;
        if (step < LONGEST_PAUSE_NS)
            step *= 2;
    }
    if (waited > __atomic_load_n(&longest_wait_ns, __ATOMIC_RELAXED))
        __atomic_store_n(&longest_wait_ns, waited, __ATOMIC_RELAXED);
    return verdict;
}

void lock_release(int fd, uint64_t start, uint64_t bytes)
{
    int saved = errno;
    set_lock(fd, F_UNLCK, start, bytes);
    errno = saved;
}

bool lock_held_elsewhere(int fd, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    int rc = fcntl(fd, command(F_OFD_GETLK, F_GETLK), &range);
    if (rc != 0 && errno == EINVAL)
        rc = fcntl(fd, F_GETLK, &range);
    return rc == 0 && range.l_type != F_UNLCK;
}

uint64_t lock_longest_wait_ns(void)
{
    return __atomic_load_n(&longest_wait_ns, __ATOMIC_RELAXED);
}
