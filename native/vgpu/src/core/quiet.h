/*
 * System calls that are no points at which a thread is cancelled, as those of the C library are: a thread that ended while it holds a
 * turn or a mutex would take it along. errno is set as usual.
 */
#ifndef VGPU_QUIET_H
#define VGPU_QUIET_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
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

static inline uint64_t clock_read(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline void quiet_sleep(long ns)
{
    struct timespec span = {0, ns};
    syscall(SYS_nanosleep, &span, NULL);
}

/* errno is the program's: it is at the end of the block what it was here. */
static inline void errno_put_back(const int *kept)
{
    errno = *kept;
}

#define KEEP_ERRNO int kept_errno __attribute__((cleanup(errno_put_back))) = errno

/* stat and fstat by their system calls: as library functions they have been symbols only since glibc 2.33. The structure is the kernel's. */
static inline int file_status(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}

static inline int path_status(const char *path, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

/* Returns whether the descriptor still is that file: a program may have closed our descriptor, and its number is another's now. */
static inline bool file_is(int fd, dev_t device, ino_t inode)
{
    struct stat status;
    return fd >= 0 && file_status(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

#endif
