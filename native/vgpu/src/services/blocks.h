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
#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_BYTES (2ull << 20)

struct block_request {
    int device;
    uint64_t bytes;  /* asked for */
    uint64_t booked; /* 0: it has to find room in a block that is there */
    bool shares;     /* it may lie in a block with others */
    bool beyond;     /* managed memory stands in for it */
    enum memory_type type;
};

/* False when the limit has no room for what the driver would take. What was reserved is under way until it is settled (process_state.h). */
bool blocks_reserve(struct block_request *request, int device, enum memory_type type, uint64_t bytes, bool shares);

/* Books the size that the request came to; false when that does not fit. */
bool blocks_resize(struct block_request *request, uint64_t bytes);

/* After the driver's answer, before underway_end: records on success, the booking back on failure. False: it lies where nothing was booked, and has to go. */
bool blocks_commit(const struct block_request *request, CUresult rc, CUdeviceptr pointer);

/* One that shared a block is free again. */
void blocks_left(int device, CUdeviceptr pointer, uint64_t bytes);

/* The context of a block ended; for records_drop_owner. */
struct record;
void blocks_dropped(const struct record *block);

/* Returns the bytes rounded up to whole blocks. */
uint64_t blocks_bytes(uint64_t bytes);

/* Arrays and modules take places in the same blocks: from now on nothing is given because a block has places left. */
void blocks_mingle(int device);

/*
 * Modules that lodge in blocks which data pay for. Small linear memory, small arrays and the variables of modules share blocks
 * of 2 MiB, and nothing tells in whose block a variable lies: what NVML measures is the same with it and without. When the data
 * go, the block stays on the card for the module's sake. So what modules may hold in such blocks is counted, and as much of what
 * data give back stays booked, as theirs, until a look at NVML shows that it went (docs/adr/0104).
 */
/* Data pay for so much more, or less, in blocks where others may lie; arrays for whole blocks, of which they take a part. */
enum suballocation { WITH_LINEAR, WITH_ARRAYS };
void suballocation_paid(int device, enum suballocation with, int64_t by);
uint64_t suballocation_paid_for(int device);

/* Data that paid for so much have gone: it is given back, but for what a module may still hold. */
void suballocation_released(int device, enum suballocation with, uint64_t bytes);

/* A module may hold up to so much of what data pay for: as much as is counted. It has gone again; true: there are others. */
uint64_t suballocation_moves_in(int device, uint64_t most);
bool suballocation_moves_out(int device, uint64_t bytes);

/* Adds blocks to all that is paid for with arrays: they are booked with more than they take. */
void suballocation_behind_arrays(int device);

/* While somebody looks how much of what is booked for modules is needed: it may be that of others who lodge, as much as is counted. */
uint64_t suballocation_lend(int device, uint64_t bytes);
void suballocation_back(int device, uint64_t bytes);

/* All modules together hold no more than so much there. */
void suballocation_at_most(int device, uint64_t bytes);
void suballocation_forget(int device); /* there are none */

#endif
