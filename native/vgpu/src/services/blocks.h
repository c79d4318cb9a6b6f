/*
 * Linear memory as the driver takes it from the card: in blocks of 2 MiB. Requests of up to half a block share one with others of
 * their size class, larger ones take whole blocks. So a block is booked before the driver is asked, not the bytes of the request.
 *
 * Whether a small request found room in a block that is there already is learned from the address that the driver gave: blocks lie at
 * multiples of their size. Size classes are taken to be powers of two; that only matters when the limit has no whole block left.
 */
#ifndef VGPU_BLOCKS_H
#define VGPU_BLOCKS_H

#include "driver/real.h"

struct block_request {
    int device;
    uint64_t bytes;  /* asked for */
    uint64_t booked; /* 0: it has to find room in a block that is there */
    bool shares;     /* it may lie in a block with others */
};

/* False when the limit has no room for what the driver would take. What was reserved is under way until it is settled (underway.h). */
bool blocks_reserve(struct block_request *request, int device, uint64_t bytes, bool shares);

/* What the request came to is known by now; false when that does not fit. */
bool blocks_resize(struct block_request *request, uint64_t bytes);

/* After the driver's answer, before underway_end: records on success, the booking back on failure. False: it lies where nothing was booked, and has to go. */
bool blocks_commit(const struct block_request *request, CUresult rc, CUdeviceptr pointer);

/* One that shared a block is free again. */
void blocks_left(int device, CUdeviceptr pointer, uint64_t bytes);

/* The context of a block ended; for records_drop_owner. */
struct record;
void blocks_dropped(const struct record *block);

/* What whole blocks come to. */
uint64_t blocks_bytes(uint64_t bytes);

/* Arrays and modules take places in the same blocks: from now on nothing is given because a block has places left. */
void blocks_mingle(int device);

void blocks_after_fork(void);

#endif
