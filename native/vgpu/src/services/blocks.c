#include "services/blocks.h"

#include "services/process_state.h"
#include "services/suballocation.h"

#include <string.h>

#define BLOCK (2ull << 20)
#define SMALLEST 512ull
enum { CLASSES = 12 }; /* 512 bytes to 1 MiB */

/* Room in shared blocks, in requests of the class. */
static int64_t room[REGION_DEVICES][CLASSES];
static bool mingled[REGION_DEVICES]; /* others have places in them, too: nobody knows how many are left */

void blocks_after_fork(void)
{
    memset(room, 0, sizeof room);
    memset(mingled, 0, sizeof mingled);
}

static int class_of(uint64_t bytes)
{
    int class = 0;
    while (SMALLEST << class < bytes)
        class++;
    return class;
}

void blocks_mingle(int device)
{
    __atomic_store_n(&mingled[device], true, __ATOMIC_RELAXED);
}

static bool has_room(int device, uint64_t bytes)
{
    return !__atomic_load_n(&mingled[device], __ATOMIC_RELAXED) && __atomic_load_n(&room[device][class_of(bytes)], __ATOMIC_RELAXED) > 0;
}

uint64_t blocks_bytes(uint64_t bytes)
{
    return bytes > INT64_MAX - BLOCK ? INT64_MAX : (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static int64_t places(int class)
{
    return (int64_t)(BLOCK / (SMALLEST << class));
}

static void more_room(int device, int class, int64_t by)
{
    __atomic_add_fetch(&room[device][class], by, __ATOMIC_RELAXED);
}

bool blocks_reserve(struct block_request *request, int device, uint64_t bytes, bool shares)
{
    *request = (struct block_request){device, bytes, blocks_bytes(bytes), shares && bytes <= BLOCK / 2};
    underway_begin(device);
    if (process_reserve_silently(device, request->booked))
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
    request->shares = request->shares && bytes <= BLOCK / 2;
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
    struct record block = {.key = pointer / BLOCK * BLOCK, .bytes = (uint64_t)class, .owner = process_current_context(),
                           .device = (int16_t)request->device, .kind = RECORD_BLOCK, .charged = 1, .references = 1};
    bool there = records_join(&block);
    more_room(request->device, class, there ? -1 : places(class) - 1);
    if (there && request->booked > 0)
        process_release(request->device, request->booked);
    if (there || request->booked > 0 || process_reserve(request->device, BLOCK)) {
        if (!there)
            suballocation_paid(request->device, WITH_LINEAR, BLOCK);
        return true;
    }
    more_room(request->device, class, 1 - places(class));
    records_count(RECORD_BLOCK, block.key, -1, 0, &block);
    return false;
}

bool blocks_commit(const struct block_request *request, CUresult rc, CUdeviceptr pointer)
{
    if (rc == CUDA_SUCCESS && request->shares) {
        bool fits = share(request, pointer);
        if (fits)
            process_note(RECORD_LINEAR, pointer, request->device, request->bytes, false);
        return fits;
    }
    if (rc == CUDA_SUCCESS)
        process_note(RECORD_LINEAR, pointer, request->device, request->booked, true);
    else if (request->booked > 0)
        process_release(request->device, request->booked);
    return true;
}

void blocks_left(int device, CUdeviceptr pointer, uint64_t bytes)
{
    struct record ended;
    int class = class_of(bytes);
    more_room(device, class, 1);
    if (records_count(RECORD_BLOCK, pointer / BLOCK * BLOCK, -1, 0, &ended)) {
        more_room(device, class, -places(class));
        suballocation_released(device, WITH_LINEAR, BLOCK);
    }
}

void blocks_dropped(const struct record *block)
{
    more_room(block->device, (int)block->bytes, (int64_t)block->references - places((int)block->bytes));
    suballocation_paid(block->device, WITH_LINEAR, -(int64_t)BLOCK);
    process_release(block->device, BLOCK);
}
