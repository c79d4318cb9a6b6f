/*
 * What an array takes. The driver does not say, so it is an estimate (spec hami-core 7.5): rows padded to 512 bytes, the whole
 * to the blocks of 2 MiB in which the driver takes memory; sparse and deferred arrays cost nothing until memory is mapped to them.
 */
#ifndef VGPU_ARRAY_BYTES_H
#define VGPU_ARRAY_BYTES_H

#include "driver/abi.h"

uint64_t array_bytes(const struct array3d_descriptor *array, unsigned levels);

#endif
