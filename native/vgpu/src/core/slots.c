#include "core/slots.h"

#include "core/file_status.h"
#include "core/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, START_TIME_FIELD = 22 };

uint64_t process_start_time(int pid)
{
    char path[64], text[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    /* The command may hold blanks and parentheses: fields count from the last closing one. */
    char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ')
        return 0;
    char state = at[2];
    if (state == 'Z' || state == 'X' || state == 'x')
        return 0;
    at += 2;
    for (int field = 3; field < START_TIME_FIELD && at != NULL; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t own_pid_namespace(void)
{
    struct stat status;
    return path_status("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

bool slot_is_dead(struct region_map *map, int slot)
{
    struct region_slot *held = &map->region->procs[slot];
    struct ext_slot *ours = &map->ext->slots[slot];
    int pid = shared_get(&held->pid);
    if (pid == 0 || slot == map->slot)
        return false;
    bool locks_itself = map->ext_shared && (shared_get(&ours->flags) & EXT_SLOT_ALIVE_LOCK) != 0;
    if (locks_itself) {
        int fd = region_fd(map);
        if (fd >= 0 && lock_held_elsewhere(fd, LOCK_ALIVE(slot), 1))
            return false;
        /* Without the lock but in another namespace: we could not see its process, and the lock is what counts. */
        if (shared_get(&ours->pid_namespace) != own_pid_namespace())
            return true;
    }
    /* A program may have closed our descriptor and so dropped the lock: only the process table is proof then. */
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return true;
    uint64_t started = process_start_time(pid);
    uint64_t recorded = locks_itself ? shared_get(&ours->start_time) : shared_get(&held->unused[0]);
    return started == 0 || (recorded != 0 && recorded != started);
}

void slot_clear(struct region_map *map, int slot)
{
    struct region_slot *held = &map->region->procs[slot];
    struct ext_slot *ours = &map->ext->slots[slot];
    /* Old claims stay readable until the pid goes: a reader that still counts them errs on the safe side. */
    for (int device = 0; device < REGION_DEVICES; device++) {
        shared_set(&ours->pending[device].fast, 0);
        shared_set(&ours->pending[device].slow, 0);
        shared_set(&held->used[device].total, 0);
        memset(&held->used[device], 0, sizeof held->used[device]);
        shared_set(&held->monitorused[device], 0);
        memset(&held->device_util[device], 0, sizeof held->device_util[device]);
    }
    shared_set(&held->hostpid, 0);
    shared_set(&held->seqlock, 0);
    memset(held->unused, 0, sizeof held->unused);
    ours->heartbeat_ns = ours->start_time = ours->pid_namespace = ours->busy_until_ns = 0;
    ours->busy_devices = 0;
    ours->lock_wait_ns = 0;
    shared_set(&ours->flags, 0);
    shared_set(&held->status, SLOT_FREE);
    shared_set(&held->pid, 0);
}

void slots_raise_mark(struct region *region, int count)
{
    int seen = shared_get(&region->proc_num);
    while ((seen < count || seen > REGION_SLOTS) && !shared_swap_if(&region->proc_num, &seen, count))
        ;
}

/*
 * Lowers the mark while the top slots are free. A claimer stores its pid and then looks at the mark; we lower the mark
 * and then look for a pid: whichever comes second sees the other and raises the mark again.
 */
static void lower_mark(struct region *region)
{
    int seen = shared_get(&region->proc_num);
    while (seen > 0 && seen <= REGION_SLOTS && shared_get(&region->procs[seen - 1].pid) == 0) {
        if (!shared_swap_if(&region->proc_num, &seen, seen - 1))
            continue;
        if (shared_get(&region->procs[seen - 1].pid) != 0) {
            slots_raise_mark(region, seen);
            return;
        }
        seen--;
    }
}

/* A thread that was booking while its process left may have written into the slot after it was emptied. */
static bool has_residue(const struct region_map *map, int slot)
{
    uint64_t residue = 0;
    for (int device = 0; device < REGION_DEVICES; device++)
        residue |= shared_get(&map->region->procs[slot].used[device].total) | shared_get(&map->ext->slots[slot].pending[device].fast);
    return residue != 0 && shared_get(&map->region->procs[slot].pid) == 0;
}

static bool wants_clearing(struct region_map *map, int slot)
{
    return slot_is_dead(map, slot) || has_residue(map, slot);
}

int slots_sweep(struct region_map *map)
{
    int emptied = 0;
    int fd = region_fd(map);
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        if (!wants_clearing(map, slot))
            continue;
        /* The dead owner's lock is ours to take; whoever else sweeps or claims it finds it busy. */
        enum lock_verdict verdict = fd >= 0 && map->ext_shared ? lock_try(fd, LOCK_ALIVE(slot), 1) : LOCK_BROKEN;
        if (verdict == LOCK_BUSY)
            continue;
        if (wants_clearing(map, slot)) {
            slot_clear(map, slot);
            emptied++;
        }
        if (verdict == LOCK_TAKEN)
            lock_release(fd, LOCK_ALIVE(slot), 1);
    }
    if (emptied > 0)
        lower_mark(map->region);
    return emptied;
}

/* Owns an already empty slot: under its lock where locks work, by swapping the pid alone where they do not. */
static bool take_slot(struct region_map *map, int fd, int slot, int pid)
{
    struct region_slot *held = &map->region->procs[slot];
    struct ext_slot *ours = &map->ext->slots[slot];
    if (shared_get(&held->pid) != 0)
        return false;
    enum lock_verdict verdict = fd >= 0 && map->ext_shared ? lock_try(fd, LOCK_ALIVE(slot), 1) : LOCK_BROKEN;
    int32_t nobody = 0;
    if (verdict == LOCK_BUSY || !shared_swap_if(&held->pid, &nobody, pid)) {
        if (verdict == LOCK_TAKEN)
            lock_release(fd, LOCK_ALIVE(slot), 1);
        return false;
    }
    uint64_t started = process_start_time(pid);
    ours->start_time = started;
    ours->pid_namespace = own_pid_namespace();
    held->unused[0] = started;
    shared_set(&ours->flags, verdict == LOCK_TAKEN ? EXT_SLOT_ALIVE_LOCK : 0);
    shared_set(&held->status, SLOT_RUNNING);
    slots_raise_mark(map->region, slot + 1);
    return true;
}

/* Our pid in a slot that nobody locks: what this process was before an exec, or an earlier one of the same number. */
static void clear_former_self(struct region_map *map, int fd, int pid)
{
    uint64_t here = own_pid_namespace();
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        uint64_t recorded = shared_get(&map->ext->slots[slot].pid_namespace);
        if (shared_get(&map->region->procs[slot].pid) != pid || (recorded != 0 && recorded != here))
            continue;
        if (fd < 0 || !map->ext_shared || lock_try(fd, LOCK_ALIVE(slot), 1) == LOCK_TAKEN) {
            slot_clear(map, slot);
            if (fd >= 0 && map->ext_shared)
                lock_release(fd, LOCK_ALIVE(slot), 1);
        }
    }
}

int slot_claim(struct region_map *map)
{
    int pid = getpid(), fd = region_fd(map);
    map->slot = -1;
    clear_former_self(map, fd, pid);
    for (int attempt = 0; attempt < 2; attempt++) {
        slots_sweep(map);
        for (int slot = 0; slot < REGION_SLOTS; slot++)
            if (take_slot(map, fd, slot, pid))
                return map->slot = slot;
    }
    return -1;
}

void slot_leave(struct region_map *map)
{
    if (map->slot < 0 || shared_get(&map->region->procs[map->slot].pid) != getpid())
        return;
    __atomic_store_n(&map->leaving, 1, __ATOMIC_SEQ_CST);
    slot_clear(map, map->slot);
    lower_mark(map->region);
}
