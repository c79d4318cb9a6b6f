/*
 * System calls that are no points at which a thread is cancelled, as those of the C library are: a thread that ended while it holds a
 * turn or a mutex would take it along. errno is set as usual.
 */
#ifndef VGPU_QUIET_H
#define VGPU_QUIET_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static inline int quiet_open(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

static inline ssize_t quiet_read(int fd, void *into, size_t bytes)
{
    return syscall(SYS_read, fd, into, bytes);
}

static inline void quiet_close(int fd)
{
    syscall(SYS_close, fd);
}

static inline void quiet_sleep(long ns)
{
    struct timespec span = {0, ns};
    syscall(SYS_nanosleep, &span, NULL);
}

#endif
