/* Calls that older C libraries do not have under these names: asked of the kernel itself, so that one build serves all of them.
 * (glibc has stat() and fstat() as symbols since 2.33, memfd_create() since 2.27.) */
#ifndef MACHINE_OLD_CALLS_H
#define MACHINE_OLD_CALLS_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int status_of_file(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}

static inline int status_of_path(const char *path, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

static inline int memory_file(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

#endif
