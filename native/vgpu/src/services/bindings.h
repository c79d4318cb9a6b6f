/*
 * Memory bound to multicast objects of this process: it lives on without its own handle, until it is unbound or the object has ended,
 * which is when nobody refers to it or maps it any more. Bindings are few, so they are one list.
 */
#ifndef VGPU_BINDINGS_H
#define VGPU_BINDINGS_H

#include "driver/real.h"

/* After the driver bound it. The memory's record has one mapping more. */
void bindings_made(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory);

/* After the driver unbound it, or ended the object. */
void bindings_undone(CUmemHandle multicast, CUdevice device, size_t at);
void bindings_ended(CUmemHandle multicast);

#endif
