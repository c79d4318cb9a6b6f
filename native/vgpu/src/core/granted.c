#include "core/granted.h"

#include "core/quiet.h"

#include <errno.h>
#include <linux/stat.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x00002000 /* Linux 5.8 */
#endif

static const struct limits_page nothing = {LIMITS_PAGE_MAGIC, LIMITS_PAGE_VERSION, LIMITS_PAGE_BYTES, 0, 0, 0, "", {{"", 0, 0}}, {.magic = 0}};

const struct limits_page *granted_nothing(void)
{
    return &nothing;
}

/* Older kernels do not tell a mount from what lies on it: there the mount has to be read-only, and no more can be asked for. */
static bool is_mount(int fd)
{
#ifdef SYS_statx
    struct statx status;
    if (syscall(SYS_statx, fd, "", 0x1000 /* AT_EMPTY_PATH */, STATX_TYPE, &status) == 0 &&
        (status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
        return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
#else
    (void)fd;
#endif
    return true;
}

static bool is_mounted_read_only(int fd)
{
    struct statvfs filesystem;
    return is_mount(fd) && fstatvfs(fd, &filesystem) == 0 && (filesystem.f_flag & ST_RDONLY) != 0;
}

static const struct limits_page *refuse(const char **problem, const char *why)
{
    *problem = why;
    return &nothing;
}

static const struct limits_page *map_page(int fd, const char **problem)
{
    struct stat status;
    if (file_status(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < (off_t)LIMITS_PAGE_BYTES)
        return refuse(problem, "it is cut short, or no file");
    const struct limits_page *page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return refuse(problem, "it cannot be mapped");
    if (page->magic == LIMITS_PAGE_MAGIC && page->version == LIMITS_PAGE_VERSION && page->bytes == LIMITS_PAGE_BYTES)
        return page;
    munmap((void *)(uintptr_t)page, sizeof *page);
    return refuse(problem, "it has a layout that this library does not know");
}

const struct limits_page *granted_page(const char *path, const char **problem)
{
    int fd = quiet_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return NULL;
    if (fd < 0) /* it may be there: for want of descriptors nobody gets rid of it */
        return refuse(problem, strerror(errno));
    const struct limits_page *page = is_mounted_read_only(fd) ? map_page(fd, problem) : NULL;
    quiet_close(fd);
    return page;
}
