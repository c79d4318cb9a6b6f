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

uint32_t shared_allocations_places(const struct region_map *map)
{
    uint32_t high = shared_get(&map->shared_allocations->high);
    return high < SHARED_ALLOCATIONS ? high : SHARED_ALLOCATIONS;
}

struct shared_allocation *shared_allocation_at(struct region_map *map, uint32_t place)
{
    struct shared_allocation *shared_allocation = &map->shared_allocations->shared_allocations[place];
    bool sound = shared_allocation->count > 0 && shared_allocation->count <= SHARED_ALLOCATION_HOLDERS && shared_allocation->device >= 0 && shared_allocation->device < REGION_DEVICES;
    for (int i = 0; sound && i < shared_allocation->count; i++)
        sound = shared_allocation->holders[i] < REGION_SLOTS;
    return sound ? shared_allocation : NULL;
}

int shared_allocation_place_of(const struct shared_allocation *shared_allocation, int slot)
{
    for (int i = 0; i < shared_allocation->count; i++)
        if (shared_allocation->holders[i] == slot)
            return i;
    return -1;
}

bool shared_allocations_hold(struct region_map *map, int slot)
{
    if (map->shared_allocations == NULL)
        return false;
    for (uint32_t place = 0, high = shared_allocations_places(map); place < high; place++) {
        const struct shared_allocation *shared_allocation = shared_allocation_at(map, place);
        if (shared_allocation != NULL && shared_allocation_place_of(shared_allocation, slot) >= 0)
            return true;
    }
    return false;
}
