#include "core/republish.h"

#include "core/ledger.h"
#include "core/process.h"
#include "core/slots.h"

static void correct(uint64_t *told, uint64_t bytes)
{
    if (shared_get(told) != bytes)
        shared_set(told, bytes);
}

static void republish_device(struct region_map *map, int device)
{
    struct device_memory *told = &map->region->procs[map->slot].used[device];
    const struct device_memory *own = &map->own.used[device];
    uint64_t shared_allocations = ledger_shared_paid(map, device);
    correct(&told->context_size, shared_get(&own->context_size));
    correct(&told->module_size, shared_get(&own->module_size));
    correct(&told->data_size, shared_get(&own->data_size) + shared_allocations);
    correct(&told->total, shared_get(&own->total) + shared_allocations);
    correct(&map->region->procs[map->slot].monitorused[device], shared_get(&map->own.monitorused[device]));
}

/* The number by which the host knows this process may be the monitor's word: it stays where the process has none of its own. */
void slot_republish(struct region_map *map)
{
    if (map->ledger == NULL || !region_has_books(map))
        return;
    struct region_slot *told = &map->region->procs[map->slot];
    struct ext_slot *ours = &map->ext->slots[map->slot];
    if (shared_get(&map->own.hostpid) != 0)
        shared_set(&told->hostpid, map->own.hostpid);
    for (int device = 0; device < REGION_DEVICES; device++) {
        republish_device(map, device);
        shared_set(&ours->pending[device].fast, 0);
        shared_set(&ours->pending[device].slow, 0);
    }
    struct process self = process_look(map->own.pid);
    ours->start_time = self.start_time;
    ours->program = self.program;
    ours->pid_namespace = process_namespace();
    shared_set(&ours->flags, EXT_SLOT_ALIVE_LOCK);
    shared_set(&ours->left_pid, 0);
    shared_set(&told->status, SLOT_RUNNING);
    shared_set(&told->pid, map->own.pid);
    slots_raise_mark(map->region, map->slot + 1);
}
