/*
 * Who has work on a device: an event pair around a kernel that is longer than a time slice also measures the slices of
 * others, so a process publishes until when it is busy.
 */
#include "driver/launching.h"

#define UNKNOWN_BUSY_NS 100000000ull /* what a launch of unknown length is taken to last, as seen by others */
#define SLICE_NS 2000000ull

static uint64_t queue_end_ns;

void activity_after_fork(void)
{
    queue_end_ns = 0;
}

uint32_t activity_sharers(int device, uint64_t since)
{
    uint32_t sharers = 1;
    if (!guest.map.ext_shared)
        return sharers;
    int count = shared_peek(&guest.map.region->proc_num);
    for (int slot = 0; slot < count && slot < REGION_SLOTS; slot++) {
        const struct ext_slot *other = &guest.map.ext->slots[slot];
        sharers += slot != guest.map.slot && shared_peek(&other->busy_until_ns) > since &&
                   (shared_peek(&other->busy_devices) >> device & 1) != 0;
    }
    return sharers;
}

void activity_publish(int device, uint64_t now, uint64_t cost_ns, bool unknown)
{
    if (guest.map.slot < 0)
        return;
    struct ext_slot *own = &guest.map.ext->slots[guest.map.slot];
    uint64_t end = __atomic_load_n(&queue_end_ns, __ATOMIC_RELAXED);
    if (end < now)
        end = now;
    /* With others on the device a long kernel takes its turn slice by slice and so ends later. */
    end += cost_ns > SLICE_NS ? cost_ns * activity_sharers(device, now) : cost_ns;
    __atomic_store_n(&queue_end_ns, end, __ATOMIC_RELAXED);
    uint64_t shown = unknown && end < now + UNKNOWN_BUSY_NS ? now + UNKNOWN_BUSY_NS : end;
    __atomic_store_n(&own->busy_until_ns, shown, __ATOMIC_RELAXED);
    uint32_t bit = 1u << device;
    if ((shared_peek(&own->busy_devices) & bit) == 0)
        __atomic_fetch_or(&own->busy_devices, bit, __ATOMIC_RELAXED);
}

void activity_answered(uint64_t now)
{
    uint64_t end = __atomic_load_n(&queue_end_ns, __ATOMIC_RELAXED);
    if (guest.map.slot >= 0)
        __atomic_store_n(&guest.map.ext->slots[guest.map.slot].busy_until_ns, end > now ? end : now, __ATOMIC_RELAXED);
}
