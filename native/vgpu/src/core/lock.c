#include "core/lock.h"

#include "core/quiet.h"
#include "core/waits.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PAUSE_NS 20000l
#define LONGEST_PAUSE_NS 200000l /* many short looks: under contention a rare one would miss its moment again and again */

static int classic_locks; /* 1 once the kernel refused open-file-description locks */

static int command(int ofd, int classic)
{
    return shared_peek(&classic_locks) ? classic : ofd;
}

static int set_lock(int fd, short type, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    int rc = fcntl(fd, command(F_OFD_SETLK, F_SETLK), &range);
    if (rc != 0 && errno == EINVAL && !classic_locks) {
        shared_put(&classic_locks, 1);
        rc = fcntl(fd, F_SETLK, &range);
    }
    return rc;
}

static enum lock_verdict verdict_of(int rc)
{
    if (rc == 0)
        return LOCK_TAKEN;
    return errno == EAGAIN || errno == EACCES || errno == EINTR ? LOCK_BUSY : LOCK_BROKEN;
}

enum lock_verdict lock_try(int fd, uint64_t start, uint64_t bytes)
{
    return verdict_of(set_lock(fd, F_WRLCK, start, bytes));
}

enum lock_verdict lock_share(int fd, uint64_t start, uint64_t bytes)
{
    return verdict_of(set_lock(fd, F_RDLCK, start, bytes));
}

bool lock_of_open_files(void)
{
    return !shared_peek(&classic_locks);
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
    KEEP_ERRNO;
    set_lock(fd, F_UNLCK, start, bytes);
}

bool lock_held_elsewhere(int fd, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    int rc = fcntl(fd, command(F_OFD_GETLK, F_GETLK), &range);
    if (rc != 0 && errno == EINVAL)
        rc = fcntl(fd, F_GETLK, &range);
    return rc == 0 && range.l_type != F_UNLCK;
}

/* All is held where the kernel does not answer. */
bool lock_find(int fd, uint64_t start, uint64_t bytes, bool alone, struct lock_range *found)
{
    struct flock range = {.l_type = alone ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    *found = (struct lock_range){start, bytes};
    if (bytes == 0)
        return false;
    if (fcntl(fd, F_OFD_GETLK, &range) != 0)
        return true;
    if (range.l_type == F_UNLCK)
        return false;
    uint64_t end = start + bytes, from = (uint64_t)range.l_start, to = range.l_len == 0 ? end : from + (uint64_t)range.l_len;
    found->start = from > start ? from : start;
    found->bytes = (to < end ? to : end) - found->start;
    return true;
}

enum { REMEMBERED = 64, QUESTIONS = 16384 };

/* The kernel tells of any range, so what lies further up is kept until its turn comes; the furthest is forgotten and asked for again. */
bool lock_walk(int fd, uint64_t start, uint64_t bytes, bool alone, void (*meet)(struct lock_range stretch, void *data), void *data)
{
    struct lock_range known[REMEMBERED];
    uint64_t at = start, end = start + bytes;
    int count = 0;
    for (int question = 0; question < QUESTIONS; question++) {
        struct lock_range found;
        if (lock_find(fd, at, (count > 0 ? known[count - 1].start : end) - at, alone, &found)) {
            if (count == REMEMBERED)
                memmove(&known[0], &known[1], (size_t)--count * sizeof *known);
            known[count++] = found;
        } else if (count > 0) {
            meet(known[--count], data);
            at = known[count].start + known[count].bytes;
        } else {
            return true;
        }
    }
    return false;
}
