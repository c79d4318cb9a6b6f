#include "core/lanes.h"

#include "core/lock.h"
#include "core/numbers.h"
#include "vgpu/region.h"

#define BASE (1ull << 40) /* where a process begins to count: what is unpaid lies before it */
#define LONGEST (LANES_BYTES - BASE)
#define UNPAID_STEP 2000ull /* us: of smaller changes nobody is told */

bool lanes_say(struct lanes *lanes, int fd, uint64_t unpaid_ns)
{
    int64_t us = shared_peek(&lanes->unsaid_ns) / 1000;
    uint64_t end = lanes->end == 0 || lanes->end > LONGEST ? BASE : lanes->end, unpaid = unpaid_ns / 1000 + 1;
    if (us <= 0 && lanes->end != 0)
        return true;
    us = us > 0 ? us : 0;
    unpaid = unpaid < BASE ? unpaid : BASE - 1;
    end += (uint64_t)us;
    uint64_t begin = distance_u64(lanes->begin, end - unpaid) < UNPAID_STEP && lanes->begin < end ? lanes->begin : end - unpaid;
    uint64_t lane = lanes->first + (uint64_t)lanes->own * LANES_BYTES;
    if (lock_share(fd, lane + begin, end - begin) != LOCK_TAKEN)
        return false;
    if (lanes->end > end)
        lock_release(fd, lane + end, lanes->end - end);
    if (lanes->end != 0 && lanes->begin < begin)
        lock_release(fd, lane + lanes->begin, begin - lanes->begin);
    lanes->begin = begin;
    lanes->end = end;
    shared_count(&lanes->unsaid_ns, -(us * 1000));
    return true;
}

/* A lane may have several stretches, where a descriptor was closed: the last one counts. */
struct looking {
    struct lanes *lanes;
    struct lanes_found found;
    int lane;
    uint64_t end, bytes;
};

static void meet_lane(struct looking *looking)
{
    struct lanes *lanes = looking->lanes;
    if (looking->lane < 0 || looking->lane == lanes->own)
        return;
    uint64_t *seen = &lanes->seen[looking->lane], from = *seen != 0 && looking->end >= *seen ? *seen : BASE; /* else somebody else's by now */
    uint64_t unpaid = (looking->bytes - 1) * 1000;
    if (lanes->looked && looking->end > from)
        looking->found.grown_ns += (looking->end - from) * 1000;
    looking->found.unpaid_ns = unpaid > looking->found.unpaid_ns ? unpaid : looking->found.unpaid_ns;
    *seen = looking->end;
}

static void meet_stretch(struct lock_range stretch, void *data)
{
    struct looking *looking = data;
    int lane = (int)((stretch.start - looking->lanes->first) / LANES_BYTES);
    if (lane != looking->lane)
        meet_lane(looking);
    looking->lane = lane;
    looking->end = (stretch.start - looking->lanes->first) % LANES_BYTES + stretch.bytes;
    looking->bytes = stretch.bytes;
}

struct lanes_found lanes_look(struct lanes *lanes, int fd)
{
    struct looking looking = {.lanes = lanes, .lane = -1};
    lock_walk(fd, lanes->first, (uint64_t)lanes->count * LANES_BYTES, false, meet_stretch, &looking);
    meet_lane(&looking);
    lanes->looked = true;
    return looking.found;
}
