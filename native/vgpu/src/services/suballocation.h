/*
 * Modules that lodge in blocks which data pay for. Small linear memory, small arrays and the variables of modules share blocks of 2 MiB, and
 * nothing tells in whose block a variable lies: what NVML measures is the same with it and without. When the data go, the block
 * stays on the card for the module's sake. So what modules may hold in such blocks is counted, and as much of what data give back stays
 * booked, as theirs, until a look at NVML shows that it went (docs/adr/0104).
 */
#ifndef VGPU_SUBALLOCATION_H
#define VGPU_SUBALLOCATION_H

#include <stdbool.h>
#include <stdint.h>

/* Data pay for so much more, or less, in blocks where others may lie; arrays for whole blocks, of which they take a part. */
enum suballocation { WITH_LINEAR, WITH_ARRAYS };
void suballocation_paid(int device, enum suballocation with, int64_t by);
uint64_t suballocation_paid_for(int device);

/* Data that paid for so much have gone: it is given back, but for what a module may still hold. */
void suballocation_released(int device, enum suballocation with, uint64_t bytes);

/* A module may hold up to so much of what data pay for: as much as is counted. It has gone again; true: there are others. */
uint64_t suballocation_moves_in(int device, uint64_t most);
bool suballocation_moves_out(int device, uint64_t bytes);

/* What has blocks of its own, and looks paid for where arrays are booked with more than they take. */
void suballocation_behind_arrays(int device);

/* While somebody looks how much of what is booked for modules is needed: it may be that of others who lodge, as much as is counted. */
uint64_t suballocation_lend(int device, uint64_t bytes);
void suballocation_back(int device, uint64_t bytes);

/* All modules together hold no more than so much there. */
void suballocation_at_most(int device, uint64_t bytes);
void suballocation_forget(int device); /* there are none */

void suballocation_after_fork(void);

#endif
