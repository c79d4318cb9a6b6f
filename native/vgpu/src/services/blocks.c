#include "services/blocks.h"

#include "core/after_fork.h"
#include "core/numbers.h"
#include "services/process_state.h"
#include "services/reconcile.h"

#include <string.h>

#define SMALLEST 512ull
enum { CLASSES = 12 }; /* 512 bytes to 1 MiB */

/* Room in shared blocks, in requests of the class. */
static int64_t room[REGION_DEVICES][CLASSES];
static bool mingled[REGION_DEVICES]; /* others have places in them, too: nobody knows how many are left */
FORGET_IN_CHILD(room);
FORGET_IN_CHILD(mingled);

static int class_of(uint64_t bytes)
{
    int class = 0;
    while (SMALLEST << class < bytes)
        class++;
    return class;
}

void blocks_mingle(int device)
{
    shared_put(&mingled[device], true);
}

static bool has_room(int device, uint64_t bytes)
{
    return !shared_peek(&mingled[device]) && shared_peek(&room[device][class_of(bytes)]) > 0;
}

uint64_t blocks_bytes(uint64_t bytes)
{
    return bytes > INT64_MAX - BLOCK_BYTES ? INT64_MAX : round_up(bytes, BLOCK_BYTES);
}

static int64_t places(int class)
{
    return (int64_t)(BLOCK_BYTES / (SMALLEST << class));
}

static void more_room(int device, int class, int64_t by)
{
    __atomic_add_fetch(&room[device][class], by, __ATOMIC_RELAXED);
}

bool blocks_reserve(struct block_request *request, int device, enum memory_type type, uint64_t bytes, bool shares)
{
    *request = (struct block_request){device, bytes, blocks_bytes(bytes), shares && bytes <= BLOCK_BYTES / 2, false, type};
    underway_begin(device);
    if (process_reserve_silently(device, type, request->booked))
        return true;
    request->booked = 0;
    if (request->shares && has_room(device, bytes))
        return true;
    underway_end(device);
    process_tell_refusal(device, bytes);
    return false;
}

bool blocks_resize(struct block_request *request, uint64_t bytes)
{
    uint64_t needed = blocks_bytes(bytes);
    request->shares = request->shares && bytes <= BLOCK_BYTES / 2;
    request->bytes = bytes;
    if (needed > request->booked && request->booked > 0) {
        if (!process_reserve(request->device, needed - request->booked))
            return false;
        request->booked = needed;
    } else if (needed < request->booked) {
        process_release(request->device, request->booked - needed);
        request->booked = needed;
    }
    return true;
}

/* Whose block it is now: that of others, which is booked, or a new one. */
static bool share(const struct block_request *request, CUdeviceptr pointer)
{
    int class = class_of(request->bytes);
    struct record block = {.key = pointer / BLOCK_BYTES * BLOCK_BYTES, .bytes = (uint64_t)class, .owner = process_current_context(),
                           .device = (int16_t)request->device, .kind = RECORD_BLOCK, .charged = 1, .references = 1};
    bool there = records_join(&block);
    more_room(request->device, class, there ? -1 : places(class) - 1);
    if (there && request->booked > 0)
        process_release(request->device, request->booked);
    if (there || request->booked > 0 || process_reserve_silently(request->device, request->beyond ? request->type : MEMORY_DATA, BLOCK_BYTES)) {
        if (!there)
            suballocation_paid(request->device, WITH_LINEAR, BLOCK_BYTES);
        return true;
    }
    more_room(request->device, class, 1 - places(class));
    records_count(RECORD_BLOCK, block.key, -1, 0, &block);
    return false;
}

static void note(const struct block_request *request, CUdeviceptr pointer, uint64_t bytes, bool charged)
{
    process_note(RECORD_LINEAR, pointer, request->device, bytes, charged);
    if (request->beyond)
        records_count(RECORD_LINEAR, pointer, 0, 1, NULL);
}

bool blocks_commit(const struct block_request *request, CUresult rc, CUdeviceptr pointer)
{
    if (rc == CUDA_SUCCESS && request->shares) {
        bool fits = share(request, pointer);
        if (fits)
            note(request, pointer, request->bytes, false);
        return fits;
    }
    if (rc == CUDA_SUCCESS)
        note(request, pointer, request->booked, true);
    else if (request->booked > 0)
        process_release(request->device, request->booked);
    return true;
}

void blocks_left(int device, CUdeviceptr pointer, uint64_t bytes)
{
    struct record ended;
    int class = class_of(bytes);
    more_room(device, class, 1);
    if (records_count(RECORD_BLOCK, pointer / BLOCK_BYTES * BLOCK_BYTES, -1, 0, &ended)) {
        more_room(device, class, -places(class));
        suballocation_released(device, WITH_LINEAR, BLOCK_BYTES);
    }
}

void blocks_dropped(const struct record *block)
{
    more_room(block->device, (int)block->bytes, (int64_t)block->references - places((int)block->bytes));
    suballocation_paid(block->device, WITH_LINEAR, -(int64_t)BLOCK_BYTES);
    process_release(block->device, BLOCK_BYTES);
}

/* ---- modules in blocks that data pay for ---- */

static struct {
    uint64_t paid[2]; /* by data, for blocks where others may lie */
    uint64_t lodged;  /* at most, by modules */
    uint64_t lodgers; /* modules, and variables of libraries */
} blocks[REGION_DEVICES];
FORGET_IN_CHILD(blocks);

void suballocation_paid(int device, enum suballocation with, int64_t by)
{
    shared_add(&blocks[device].paid[with], (uint64_t)by);
}

uint64_t suballocation_paid_for(int device)
{
    return shared_get(&blocks[device].paid[WITH_LINEAR]) + shared_get(&blocks[device].paid[WITH_ARRAYS]);
}

static uint64_t add(int device, uint64_t most, uint64_t paid)
{
    uint64_t bytes = most < paid ? most : paid;
    shared_add(&blocks[device].lodged, bytes);
    return bytes;
}

uint64_t suballocation_lend(int device, uint64_t bytes)
{
    return add(device, bytes, suballocation_paid_for(device));
}

uint64_t suballocation_moves_in(int device, uint64_t most)
{
    shared_add(&blocks[device].lodgers, 1);
    return suballocation_lend(device, most);
}

void suballocation_behind_arrays(int device)
{
    add(device, UINT64_MAX, shared_get(&blocks[device].paid[WITH_ARRAYS]));
}

static uint64_t take(int device, uint64_t bytes)
{
    uint64_t had = shared_get(&blocks[device].lodged), taken;
    do
        taken = bytes < had ? bytes : had;
    while (taken > 0 && !shared_swap_if(&blocks[device].lodged, &had, had - taken));
    return taken;
}

void suballocation_back(int device, uint64_t bytes)
{
    take(device, bytes);
}

bool suballocation_moves_out(int device, uint64_t bytes)
{
    take(device, bytes);
    return shared_sub(&blocks[device].lodgers, 1) > 1;
}

void suballocation_forget(int device)
{
    shared_set(&blocks[device].lodged, 0);
    shared_set(&blocks[device].lodgers, 0);
}

void suballocation_at_most(int device, uint64_t bytes)
{
    uint64_t had = shared_get(&blocks[device].lodged);
    if (had > bytes)
        take(device, had - bytes);
}

void suballocation_released(int device, enum suballocation with, uint64_t bytes)
{
    uint64_t kept = shared_peek(&blocks[device].lodged) == 0 ? 0 : take(device, bytes);
    if (kept > 0)
        reconcile_keep(device, kept);
    suballocation_paid(device, with, -(int64_t)bytes);
    if (bytes > kept)
        process_release(device, bytes - kept);
}
