/* The shared state: finding it, locking it, and the faults that a test has set. */
#define _GNU_SOURCE
#include "npu_core.h"
#include "old_calls.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char the_path[PATH_MAX];
static struct npu_state *the_state;
static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static struct npu_state *map(void)
{
    const char *directory = getenv("PUMICE_MACHINE");
    if (!directory || !*directory)
        directory = "/run/pumice/machine";
    if ((size_t)snprintf(the_path, sizeof the_path, "%s/npus", directory) >= sizeof the_path)
        return NULL;
    int fd = open(the_path, O_RDWR | O_CLOEXEC);
    struct stat facts;
    if (fd < 0)
        return NULL;
    struct npu_state *s = MAP_FAILED;
    if (status_of_file(fd, &facts) == 0 && (size_t)facts.st_size >= sizeof *s)
        s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED)
        return NULL;
    if (s->magic == NPU_MAGIC && s->version == NPU_VERSION && s->size == sizeof *s && s->chip_count <= NPU_CHIPS)
        return s;
    munmap(s, sizeof *s);
    return NULL;
}

struct npu_state *npu_attach(void)
{
    pthread_mutex_lock(&attaching);
    if (!the_state)
        the_state = map();
    pthread_mutex_unlock(&attaching);
    return the_state;
}

/* Threads of one process take turns by `turn`, which the compiler knows for a lock; processes by the file's. */
int npu_lock(void)
{
    pthread_mutex_lock(&turn);
    int fd = open(the_path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&turn);
    return -1;
}

void npu_unlock(int held)
{
    if (held < 0)
        return;
    close(held);
    pthread_mutex_unlock(&turn);
}

static bool meets(const struct npu_fault *f, const char *function)
{
    return f->used && strncmp(f->function, function, sizeof f->function) == 0 && f->calls >= f->first &&
           (f->count == 0 || f->calls < f->first + f->count);
}

int npu_fault(const char *function)
{
    int code = 0;
    for (unsigned i = 0; i < NPU_FAULTS; i++) {
        struct npu_fault *f = &the_state->faults[i];
        if (!f->used || strncmp(f->function, function, sizeof f->function) != 0)
            continue;
        f->calls++;
        if (!meets(f, function))
            continue;
        if (f->crash == 1)
            raise(SIGKILL);
        code = f->code;
    }
    return code;
}

void npu_done(const char *function)
{
    for (unsigned i = 0; i < NPU_FAULTS; i++)
        if (meets(&the_state->faults[i], function) && the_state->faults[i].crash == 2)
            raise(SIGKILL);
}

uint64_t npu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
