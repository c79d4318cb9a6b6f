#include "services/suballocation.h"

#include "services/process_state.h"
#include "services/reconcile.h"

#include <string.h>

static struct {
    uint64_t paid[2]; /* by data, for blocks where others may lie */
    uint64_t lodged;  /* at most, by modules */
    uint64_t lodgers; /* modules, and variables of libraries */
} blocks[REGION_DEVICES];

void suballocation_after_fork(void)
{
    memset(blocks, 0, sizeof blocks);
}

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
