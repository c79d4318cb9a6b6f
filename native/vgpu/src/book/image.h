/*
 * The device memory that a module will need by its image, before the driver is asked to load it.
 *
 * Read are the formats that are public or that programs carry: cubins (ELF), fat binaries with their wrapper, and PTX. Variables
 * are known to the byte; code is known of a cubin and bounded for PTX. What is compressed or of no known format says nothing.
 * The image is somebody's memory without a length, so it is read by system call: an address that is none is no end of the process.
 */
#ifndef VGPU_IMAGE_H
#define VGPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_need {
    uint64_t variables; /* in global memory */
    uint64_t pieces;    /* how many those are; 0: nobody knows, or none */
    uint64_t code;      /* and constants; of PTX: at most about so much, once it is translated */
    bool translated;    /* it is PTX */
    bool known;         /* false: it says nothing */
};

#define IMAGE_SILENT ((struct image_need){.known = false})

/* capability: of the card, 10 * major + minor; of several images in one the driver takes the one that fits it best. */
struct image_need image_need_in_memory(const void *image, int capability);
struct image_need image_need_in_file(const char *path, int capability);

/* image_ptx.c: an image where it lies, in this process's memory or in a file. */
struct source {
    int fd;        /* of the file, or of /proc/self/mem where the system call is not to be had; -1 */
    uint64_t base; /* address of the image; 0 for a file */
};

/* False when not all of it is there. */
bool source_read(const struct source *source, uint64_t at, void *into, size_t bytes);

/* Returns how many bytes, up to so many, are there; a part of a page that is there counts in full. */
size_t source_read_some(const struct source *source, uint64_t at, void *into, size_t bytes);

struct image_need image_of_ptx(const struct source *source, uint64_t at, uint64_t most);

#endif
