#include "core/slots.h"

#include "core/after_fork.h"
#include "core/region_map.h"
#include "core/lock.h"
#include "core/process.h"
#include "core/quiet.h"

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* The record lock is the kernel's word for it, across PID namespaces; without one only the process table knows. */
static bool locks_itself(const struct region_map *map, int slot)
{
    return map->ext_shared && (shared_get(&map->ext->slots[slot].flags) & EXT_SLOT_ALIVE_LOCK) != 0;
}

static int owner_of(const struct region_map *map, int slot)
{
    int pid = shared_get(&map->region->procs[slot].pid);
    return pid != 0 ? pid : shared_get(&map->ext->slots[slot].left_pid);
}

/* A program may have closed our descriptor and so dropped the lock: only the process table is proof then. */
static struct process look_at_owner(struct region_map *map, int slot, int pid)
{
    struct ext_slot *ours = &map->ext->slots[slot];
    bool locks = locks_itself(map, slot);
    if (locks && shared_get(&ours->pid_namespace) != process_namespace())
        return (struct process){.stopped = true, .gone = true}; /* we could not see its process, and the lock is what counts */
    struct process owner = process_look(pid);
    uint64_t recorded = locks ? shared_get(&ours->start_time) : shared_get(&map->region->procs[slot].unused[0]);
    uint64_t program = locks ? shared_get(&ours->program) : 0;
    bool another = owner.start_time != 0 && recorded != 0 && recorded != owner.start_time; /* the number was given out again */
    bool executed = owner.program != 0 && program != 0 && program != owner.program; /* and what the program before had is closed */
    if (another || executed)
        owner.stopped = owner.gone = true;
    return owner;
}

bool slot_has_stopped(struct region_map *map, int slot)
{
    int pid = owner_of(map, slot);
    return pid == 0 || look_at_owner(map, slot, pid).stopped;
}

uint64_t slot_holds(const struct region_map *map, int slot, int device)
{
    const struct ext_slot *ours = &map->ext->slots[slot];
    uint64_t total = shared_get(&map->region->procs[slot].used[device].total), left = shared_get(&ours->pending[device].fast);
    bool leaves = (shared_get(&ours->flags) & EXT_SLOT_LEAVING) != 0;
    return leaves && left < UINT64_MAX - total ? total + left : total;
}

bool slot_is_ending(const struct region_map *map, int slot)
{
    int pid = owner_of(map, slot);
    struct process owner = pid > 0 ? process_look(pid) : (struct process){.gone = true};
    uint64_t recorded = shared_get(&map->ext->slots[slot].start_time);
    return owner.stopped && !owner.gone && (recorded == 0 || recorded == owner.start_time);
}

bool slot_is_dead(struct region_map *map, int slot)
{
    int pid = owner_of(map, slot);
    if (slot_is_free(map, slot) || slot == map->slot)
        return false;
    if (map->ledger != NULL) {
        int fd = region_fd(map);
        return fd >= 0 && !lock_held_elsewhere(fd, LOCK_ALIVE(slot), 1) && !slot_is_ending(map, slot);
    }
    if (locks_itself(map, slot)) {
        int fd = region_fd(map);
        if (fd >= 0 && lock_held_elsewhere(fd, LOCK_ALIVE(slot), 1))
            return false;
    }
    return pid == 0 || look_at_owner(map, slot, pid).gone; /* without a pid: whoever emptied it was killed on the way */
}

static void empty_for_monitors(struct region_slot *held)
{
    for (int device = 0; device < REGION_DEVICES; device++) {
        shared_set(&held->used[device].total, 0);
        memset(&held->used[device], 0, sizeof held->used[device]);
        shared_set(&held->monitorused[device], 0);
        memset(&held->device_util[device], 0, sizeof held->device_util[device]);
    }
    shared_set(&held->hostpid, 0);
    shared_set(&held->seqlock, 0);
    memset(held->unused, 0, sizeof held->unused);
    shared_set(&held->status, SLOT_FREE);
    shared_set(&held->pid, 0);
}

bool slot_lock_pass(uint32_t *lock, uint32_t owner, uint32_t next)
{
    uint32_t seen = shared_get(lock);
    while ((seen & LOCK_OWNER) == owner)
        if (shared_swap_if(lock, &seen, next | (seen & LOCK_WAITED_FOR)))
            return true;
    return false;
}

/* The slot is held, or its own. */
static void end_locks(struct region_map *map, int slot)
{
    uint32_t *shared = map->shared_allocations != NULL ? &map->shared_allocations->lock : NULL;
    for (int device = 0; device <= REGION_DEVICES; device++) {
        uint32_t *locks[] = {device < REGION_DEVICES ? &map->ext->memory_locks[device] : shared,
                             device < REGION_DEVICES ? &map->ext->devices[device].context_lock : NULL};
        for (int i = 0; i < 2; i++)
            if (locks[i] != NULL && slot_lock_pass(locks[i], (uint32_t)slot + 1, 0))
                syscall(SYS_futex, locks[i], FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

/* The flags last: until then it is somebody's who leaves, and nobody claims it half empty. */
void slot_clear(struct region_map *map, int slot)
{
    struct ext_slot *ours = &map->ext->slots[slot];
    __atomic_fetch_or(&ours->flags, EXT_SLOT_LEAVING, __ATOMIC_SEQ_CST);
    empty_for_monitors(&map->region->procs[slot]);
    for (int device = 0; device < REGION_DEVICES; device++) {
        shared_set(&ours->pending[device].fast, 0);
        shared_set(&ours->pending[device].slow, 0);
    }
    ours->heartbeat_ns = ours->start_time = ours->program = ours->pid_namespace = ours->busy_until_ns = 0;
    ours->busy_devices = 0;
    if (map->fair != NULL)
        memset(map->fair->uses[slot], 0, sizeof map->fair->uses[slot]);
    end_locks(map, slot);
    shared_set(&ours->left_pid, 0);
    shared_set(&ours->flags, 0);
}

void slots_raise_mark(struct region *region, int count)
{
    int seen = shared_get(&region->proc_num);
    while ((seen < count || seen > REGION_SLOTS) && !shared_swap_if(&region->proc_num, &seen, count))
        ;
}

bool slot_is_free(const struct region_map *map, int slot)
{
    return shared_get(&map->region->procs[slot].pid) == 0 && (shared_get(&map->ext->slots[slot].flags) & EXT_SLOT_LEAVING) == 0;
}

/*
 * Lowers the mark while the top slots are free. A claimer stores its pid and then looks at the mark; we lower the mark
 * and then look for a pid: whichever comes second sees the other and raises the mark again.
 */
static void lower_mark(const struct region_map *map)
{
    struct region *region = map->region;
    int seen = shared_get(&region->proc_num);
    while (seen > 0 && seen <= REGION_SLOTS && slot_is_free(map, seen - 1)) {
        if (!shared_swap_if(&region->proc_num, &seen, seen - 1))
            continue;
        if (!slot_is_free(map, seen - 1)) {
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
    return residue != 0 && slot_is_free(map, slot);
}

/* What others hold on to is charged to them first (shared_allocations_sweep). */
static bool wants_clearing(struct region_map *map, int slot)
{
    return (slot_is_dead(map, slot) || has_residue(map, slot)) && !shared_allocations_hold(map, slot);
}

/* The record locks of others are held one at a time in this process: the kernel does not tell its threads apart. */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(holding);

bool slot_hold(struct region_map *map, int slot)
{
    int fd = region_fd(map);
    if (slot == map->slot || pthread_mutex_trylock(&holding) != 0)
        return false;
    if (fd < 0 || !map->ext_shared || lock_try(fd, LOCK_ALIVE(slot), 1) != LOCK_BUSY)
        return true;
    pthread_mutex_unlock(&holding);
    return false;
}

void slot_let_go(struct region_map *map, int slot)
{
    int fd = region_fd(map);
    if (fd >= 0 && map->ext_shared)
        lock_release(fd, LOCK_ALIVE(slot), 1);
    pthread_mutex_unlock(&holding);
}

int slots_sweep(struct region_map *map)
{
    int emptied = 0;
    bool all = true;
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        if (!wants_clearing(map, slot))
            continue;
        bool held = slot_hold(map, slot); /* else somebody sweeps or claims it */
        if (held && wants_clearing(map, slot)) {
            slot_clear(map, slot);
            emptied++;
        }
        if (held)
            slot_let_go(map, slot);
        all &= held;
    }
    if (emptied > 0)
        lower_mark(map);
    return all ? emptied : -1;
}

/* Owns an already empty slot: under its lock where locks work, by swapping the pid alone where they do not. */
static bool take_slot(struct region_map *map, int fd, int slot, int pid)
{
    struct region_slot *held = &map->region->procs[slot];
    struct ext_slot *ours = &map->ext->slots[slot];
    if (!slot_is_free(map, slot))
        return false;
    enum lock_verdict verdict = fd >= 0 && map->ext_shared ? lock_try(fd, LOCK_ALIVE(slot), 1) : LOCK_BROKEN;
    int32_t nobody = 0;
    if (verdict == LOCK_BUSY || !shared_swap_if(&held->pid, &nobody, pid)) {
        if (verdict == LOCK_TAKEN)
            lock_release(fd, LOCK_ALIVE(slot), 1);
        return false;
    }
    struct process self = process_look(pid);
    ours->start_time = self.start_time;
    ours->program = self.program;
    ours->pid_namespace = process_namespace();
    held->unused[0] = self.start_time;
    map->locked = verdict == LOCK_TAKEN;
    shared_set(&ours->flags, map->locked ? EXT_SLOT_ALIVE_LOCK : 0);
    shared_set(&held->status, SLOT_RUNNING);
    slots_raise_mark(map->region, slot + 1);
    return true;
}

/* Our pid in a slot that nobody locks: what this process was before an exec, or an earlier one of the same number. */
static void clear_former_self(struct region_map *map, int fd, int pid)
{
    uint64_t here = process_namespace();
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        uint64_t recorded = shared_get(&map->ext->slots[slot].pid_namespace);
        if (shared_get(&map->region->procs[slot].pid) != pid || (recorded != 0 && recorded != here) || shared_allocations_hold(map, slot))
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

/* What is held moves from where monitors look to where only we do. Whoever adds up counts it twice for a moment, never not at all. */
static void keep_until_gone(struct region_map *map)
{
    struct region_slot *held = &map->region->procs[map->slot];
    struct ext_slot *ours = &map->ext->slots[map->slot];
    shared_set(&ours->left_pid, shared_get(&held->pid));
    __atomic_fetch_or(&ours->flags, EXT_SLOT_LEAVING, __ATOMIC_SEQ_CST);
    for (int device = 0; device < REGION_DEVICES; device++)
        shared_add(&ours->pending[device].fast, shared_get(&held->used[device].total));
    empty_for_monitors(held);
}

void slot_leave(struct region_map *map)
{
    if (map->slot < 0 || shared_get(&region_own(map)->pid) != getpid())
        return;
    shared_set(&map->leaving, 1);
    if (map->ext_shared) {
        keep_until_gone(map);
    } else {
        slot_clear(map, map->slot);
        lower_mark(map);
    }
}
