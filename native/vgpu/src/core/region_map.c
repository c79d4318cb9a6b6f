#include "core/region_map.h"

#include "core/lock.h"
#include "core/quiet.h"
#include "core/waits.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FD_FLOOR = 200 }; /* programs pass low descriptors about and close them in loops */

int region_fd_move_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

void region_forget(struct region_map *map)
{
    waits_go_to(NULL);
    if (map->ledger != NULL)
        munmap(map->ledger, map->ledger_bytes);
    if (map->usage != NULL)
        munmap(map->usage, map->usage_bytes);
    map->ledger = NULL;
    map->usage = NULL;
    if (map->ext != NULL && !map->ext_shared && map->shared)
        munmap(map->ext, REGION_EXT_BYTES);
    if (map->region != NULL)
        munmap(map->region, map->mapped_bytes);
    if (map->fd >= 0)
        close(map->fd);
    map->region = NULL;
    map->ext = NULL;
    map->shared_allocations = NULL;
    map->fair = NULL;
    map->fd = map->slot = -1;
    map->shared = map->ext_shared = map->locked = false;
}

int region_fd(struct region_map *map)
{
    if (!map->shared)
        return -1;
    if (file_is(map->fd, map->device, map->inode))
        return map->fd;
    /* The program closed our descriptor: whatever has its number now is not ours to close. */
    int fd = quiet_open(map->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0)
        fd = region_fd_move_up(fd);
    if (!file_is(fd, map->device, map->inode)) {
        if (fd >= 0)
            quiet_close(fd);
        return -1;
    }
    map->fd = fd;
    map->reopened++;
    if (map->slot >= 0 && map->ext_shared)
        lock_try(fd, LOCK_ALIVE(map->slot), 1);
    return fd;
}
