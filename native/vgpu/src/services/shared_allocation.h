/*
 * The memory that this process exported and imported (core/shared_allocations.h): who passes memory on, who gets it, and by what
 * it is known again.
 *
 * A handle of 64 bytes (IPC, fabric) is known by its bytes. A descriptor is not: on a card all of them are of one device file,
 * and what they stand for only the driver knows. So the exported file takes a lock of its own on a byte that is the shared
 * allocation's alone. The lock belongs to the open file and travels with it, whatever its number becomes in another process.
 */
#ifndef VGPU_SHARED_ALLOCATION_H
#define VGPU_SHARED_ALLOCATION_H

#include "book/records.h"
#include "core/region_map.h"

enum { HANDLE_BYTES = 64 };

/* After a successful export of what the record stands for. */
void shared_allocation_exported_bytes(enum record_kind kind, uint64_t key, const void *handle);
void shared_allocation_exported_descriptor(enum record_kind kind, uint64_t key, int fd);

/* Before an import: this process holds it from now on, and somebody pays. 0: nobody knows it. */
uint32_t shared_allocation_of_bytes(const void *handle, struct shared_allocation *what);
uint32_t shared_allocation_of_descriptor(int fd, struct shared_allocation *what);

/* A record that held it is gone. */
void shared_allocation_let_go(uint32_t shared_allocation);

/* Returns the bytes booked in this process for its exports out of shared blocks that are not on the card: NVML counts those blocks once. */
uint64_t shared_allocation_beside_driver(int device);

#endif
