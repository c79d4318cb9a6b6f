/*
 * Modules that lodge in blocks which data pay for. Small linear memory, small arrays and the variables of modules share blocks of 2 MiB, and
 * nothing tells in whose block a variable lies: what NVML measures is the same with it and without. When the data go, the block
 * stays on the card for the module's sake. So what modules may hold in such blocks is counted, and as much of what data give back stays
 * booked, as theirs, until a look at NVML shows that it went (docs/adr/0104).
 */
#ifndef VGPU_LODGING_H
#define VGPU_LODGING_H

#include <stdbool.h>
#include <stdint.h>

/* Data pay for so much more, or less, in blocks where others may lie; arrays for whole blocks, of which they take a part. */
enum lodging { WITH_LINEAR, WITH_ARRAYS };
void lodging_paid(int device, enum lodging with, int64_t by);
uint64_t lodging_paid_for(int device);

/* Data that paid for so much have gone: it is given back, but for what a module may still hold. */
void lodging_released(int device, enum lodging with, uint64_t bytes);

/* A module may hold up to so much of what data pay for: as much as is counted. It has gone again; true: there are others. */
uint64_t lodging_moves_in(int device, uint64_t most);
bool lodging_moves_out(int device, uint64_t bytes);

/* What has blocks of its own, and looks paid for where arrays are booked with more than they take. */
void lodging_behind_arrays(int device);

/* While somebody looks how much of what is booked for modules is needed: it may be that of others who lodge, as much as is counted. */
uint64_t lodging_lend(int device, uint64_t bytes);
void lodging_back(int device, uint64_t bytes);

/* All modules together hold no more than so much there. */
void lodging_at_most(int device, uint64_t bytes);
void lodging_forget(int device); /* there are none */

void lodging_after_fork(void);

#endif
