#include "core/lock.h"

#include "core/quiet.h"
#include "core/waits.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define FIRST_PAUSE_NS 20000l
#define LONGEST_PAUSE_NS 200000l /* many short looks: under contention a rare one would miss its moment again and again */

static int classic_locks; /* 1 once the kernel refused open-file-description locks */

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

enum lock_verdict lock_wait(int fd, uint64_t start, uint64_t bytes)
{
    enum lock_verdict verdict = lock_try(fd, start, bytes);
    if (verdict != LOCK_BUSY)
        return verdict;
    struct wait wait = wait_begin();
    for (long step = FIRST_PAUSE_NS; verdict == LOCK_BUSY && !wait_is_over(&wait); step += step < LONGEST_PAUSE_NS ? step : 0) {
        /* Different processes pause differently, so that they do not march in step. */
        quiet_sleep(step / 2 + (long)((uint64_t)getpid() * 2654435761u % (uint64_t)(step / 2)));
        verdict = lock_try(fd, start, bytes);
    }
    wait_end(&wait, verdict == LOCK_BUSY);
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
