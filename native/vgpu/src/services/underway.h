/*
 * Whether another thread is between its books and the driver: allocations are booked before they happen, frees after, and
 * what NVML measures meanwhile is less than what is booked.
 */
#ifndef VGPU_UNDERWAY_H
#define VGPU_UNDERWAY_H

#include <stdbool.h>

/* Around booking, call and settling, or the other way round. Of a device below 0 nothing is noted. */
void underway_begin(int device);
void underway_end(int device);

/* Nobody but this thread is. */
bool underway_nobody_else(int device);

void underway_after_fork(void);

#endif
