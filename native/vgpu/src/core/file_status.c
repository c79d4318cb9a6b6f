#include "core/file_status.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* On 64-bit Linux the C library's structure is the kernel's. */
int file_status(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}

int path_status(const char *path, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

bool file_is(int fd, dev_t device, ino_t inode)
{
    struct stat status;
    return fd >= 0 && file_status(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}
