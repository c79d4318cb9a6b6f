/*
 * Who has work on a device: an event pair around a kernel that is longer than a time slice also measures the slices of
 * others, so a process publishes until when it is busy, to its container in the region and to others in the node's file.
 */
#include "core/numbers.h"
#include "core/slots.h"
#include "services/launching.h"

#include "core/after_fork.h"
#include "core/waits.h"
#include "policy/arbiter.h"
#include "policy/usage.h"

#include <pthread.h>
#include <string.h>

#define UNKNOWN_BUSY_NS 100000000ull /* what the first launch of unknown length is taken to last, as seen by others */

static uint64_t queue_end_ns[REGION_DEVICES], unmeasured_end_ns[REGION_DEVICES];
static uint64_t unknown_ns[REGION_DEVICES]; /* the longest that launches of unknown length took lately; 0: none has answered */
#define SETTLE_NS 30000ull /* between looks at what is longer than it was expected to be */

static struct arbiter arbiters[REGION_DEVICES];
static uint8_t arbiter_state[REGION_DEVICES]; /* 0 untried, 1 open, 2 not available */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(queue_end_ns);
FORGET_IN_CHILD(unmeasured_end_ns);
FORGET_IN_CHILD(unknown_ns);
FORGET_IN_CHILD(arbiter_state);
FORGET_IN_CHILD(opening);

void activity_before_forgetting(void)
{
    for (int device = 0; device < REGION_DEVICES; device++)
        arbiter_close(&arbiters[device]);
}

/* The node's file for the device; NULL where there is none. Opened once, by the first launch under a limit. */
static struct arbiter *node_file(int device)
{
    uint8_t state = __atomic_load_n(&arbiter_state[device], __ATOMIC_ACQUIRE);
    if (__builtin_expect(state == 0, 0)) {
        mutex_take(&opening);
        if (arbiter_state[device] == 0) {
            char uuid[REGION_UUID_BYTES];
            memcpy(uuid, granted_uuid(process_state.map.page, device, process_state.map.region->uuids[device]), sizeof uuid);
            uuid[sizeof uuid - 1] = '\0';
            /* Of the process: the others of its container wait for its work and it for theirs, as for anybody's. */
            uint64_t identity = (uint64_t)process_state.map.device << 48 ^ (uint64_t)process_state.map.slot << 32 ^ (uint64_t)process_state.map.inode;
            uint64_t now = policy_clock.now();
            bool open = process_state.map.ext_shared && arbiter_open(&arbiters[device], process_state.config.arbiter_directory, uuid, identity, now);
            if (open) { /* at once: who seems not to take part would be waited for by nobody */
                arbiter_publish(&arbiters[device], now, 0, (uint32_t)core_limit(&process_state.map, device), process_state.config.arbiter);
                usage_join_card(&process_state.map, device, &arbiters[device]);
            }
            __atomic_store_n(&arbiter_state[device], open ? 1 : 2, __ATOMIC_RELEASE);
        }
        state = arbiter_state[device];
        pthread_mutex_unlock(&opening);
    }
    return state == 1 ? &arbiters[device] : NULL;
}

/* The container's other processes that have work on the device after that moment, and the latest end of it. */
static uint32_t neighbours(int device, uint64_t since, uint64_t *latest)
{
    uint32_t count = 0;
    *latest = since;
    for (int slot = 0, slots = process_state.map.ext_shared ? slots_in_use(&process_state.map) : 0; slot < slots; slot++) {
        const struct ext_slot *other = &process_state.map.ext->slots[slot];
        uint64_t until = shared_peek(&other->busy_until_ns);
        if (slot == process_state.map.slot || until <= since || (shared_peek(&other->busy_devices) >> device & 1) == 0)
            continue;
        *latest = max_u64(*latest, until);
        count++;
    }
    return count;
}

uint32_t activity_sharers(int device, uint64_t now, uint64_t since)
{
    uint64_t latest;
    struct arbiter *node = process_state.map.ext_shared ? node_file(device) : NULL;
    return 1 + (node != NULL ? arbiter_others(node, now, since) : neighbours(device, since, &latest));
}

uint64_t activity_clear_at(int device, uint64_t now)
{
    struct arbiter *node = process_state.map.ext_shared ? node_file(device) : NULL;
    return node != NULL ? arbiter_clear_at(node, now) : activity_neighbours_clear_at(device, now);
}

uint64_t activity_neighbours_clear_at(int device, uint64_t now)
{
    uint64_t latest;
    neighbours(device, now, &latest);
    return latest;
}

static void show(int device, uint64_t now, uint64_t until)
{
    struct ext_slot *own = &process_state.map.ext->slots[process_state.map.slot];
    shared_put(&own->busy_until_ns, until);
    uint32_t bit = 1u << device;
    if ((shared_peek(&own->busy_devices) & bit) == 0)
        __atomic_fetch_or(&own->busy_devices, bit, __ATOMIC_RELAXED);
    struct arbiter *node = node_file(device);
    if (node != NULL)
        arbiter_publish(node, now, until, (uint32_t)core_limit(&process_state.map, device), process_state.config.arbiter);
}

uint64_t activity_unknown_length(int device, uint64_t most)
{
    uint64_t longest = shared_peek(&unknown_ns[device]);
    longest += longest / 8;
    return longest > 0 && longest < most ? longest : most;
}

void activity_learned(int device, uint64_t length)
{
    uint64_t longest = shared_peek(&unknown_ns[device]);
    longest -= longest / 8;
    shared_put(&unknown_ns[device], length > longest ? length : longest);
}

void activity_publish(int device, uint64_t now, struct queued queued)
{
    if (!region_has_books(&process_state.map))
        return;
    uint64_t end = max_u64(shared_peek(&queue_end_ns[device]), now);
    /* With others on the device it takes turns with them and ends later. */
    end += queued.ns * activity_sharers(device, now, now);
    shared_put(&queue_end_ns[device], end);
    if (!queued.measured)
        shared_put(&unmeasured_end_ns[device], end);
    uint64_t unknown_end = queued.unknown ? now + activity_unknown_length(device, UNKNOWN_BUSY_NS) : 0;
    show(device, now, end < unknown_end ? unknown_end : end + queued.ahead_ns);
}

/* Sooner or later than was said before. */
static void ends_at(int device, uint64_t end)
{
    shared_put(&queue_end_ns[device], end);
    shared_put(&process_state.map.ext->slots[process_state.map.slot].busy_until_ns, end);
    struct arbiter *node = node_file(device);
    if (node != NULL)
        arbiter_answered(node, end);
}

/*
 * Who takes turns has to know when the one before is done, not when it was expected to be. While a measured launch has not answered it
 * goes on, and once all have, only what was not measured is still expected. It is told a look ahead, for who waits wakes at that moment.
 */
uint64_t activity_refresh(int device, uint64_t now, bool awaits)
{
    struct arbiter *node = process_state.config.arbiter && region_has_books(&process_state.map) ? node_file(device) : NULL;
    uint64_t end = shared_peek(&queue_end_ns[device]);
    if (node == NULL || (!awaits && end <= now))
        return 0;
    end = awaits ? max_u64(end, now + 2 * SETTLE_NS) : max_u64(shared_peek(&unmeasured_end_ns[device]), now);
    ends_at(device, end);
    return awaits ? end - now - SETTLE_NS : end - now;
}

void activity_answered(int device, uint64_t now)
{
    const uint64_t *queued = sampler_awaits(device) > 0 ? queue_end_ns : unmeasured_end_ns;
    if (region_has_books(&process_state.map))
        ends_at(device, max_u64(shared_peek(&queued[device]), now));
}

uint64_t activity_ask(int device, uint64_t now, uint64_t limit)
{
    struct arbiter *node = process_state.config.arbiter && region_has_books(&process_state.map) ? node_file(device) : NULL;
    return node == NULL ? 0 : arbiter_ask(node, now, (uint32_t)limit);
}
