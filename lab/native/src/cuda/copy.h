#ifndef PUMICE_MACHINE_COPY_H
#define PUMICE_MACHINE_COPY_H

#include "objects.h"

/* The sorts of memory in which an address may lie. */
enum side { DEVICE_SIDE, HOST_SIDE, EITHER_SIDE };
CUresult copy_range(uint64_t to, enum side to_side, uint64_t from, enum side from_side, uint64_t bytes);
CUresult copy_box(const CUDA_MEMCPY3D *c);
CUresult fill_box(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height);

#endif
