/*
 * What a module's image says of the device memory that it will need, before the driver is asked to load it.
 *
 * Read are the formats that are public or that programs carry: cubins (ELF), fat binaries with their wrapper, and PTX. Variables
 * are known to the byte; code is known of a cubin and bounded for PTX. What is compressed or of no known format says nothing.
 * The image is somebody's memory without a length, so it is read by system call: an address that is none is no end of the process.
 */
#ifndef VGPU_IMAGE_H
#define VGPU_IMAGE_H

#include "book/image_need.h"

/* capability: of the card, 10 * major + minor; of several images in one the driver takes the one that fits it best. */
struct image_need image_need_in_memory(const void *image, int capability);
struct image_need image_need_in_file(const char *path, int capability);

#endif
