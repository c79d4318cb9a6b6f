/* stat and fstat by their system calls: as library functions they have been symbols only since glibc 2.33. */
#ifndef VGPU_FILE_STATUS_H
#define VGPU_FILE_STATUS_H

#include <sys/stat.h>

int file_status(int fd, struct stat *status);
int path_status(const char *path, struct stat *status);

#endif
