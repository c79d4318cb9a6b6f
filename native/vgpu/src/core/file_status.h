/* stat and fstat by their system calls: as library functions they have been symbols only since glibc 2.33. */
#ifndef VGPU_FILE_STATUS_H
#define VGPU_FILE_STATUS_H

#include <stdbool.h>
#include <sys/stat.h>

int file_status(int fd, struct stat *status);
/* Whether it still is that file: a program may have closed our descriptor, and its number is another's now. */
bool file_is(int fd, dev_t device, ino_t inode);
int path_status(const char *path, struct stat *status);

#endif
