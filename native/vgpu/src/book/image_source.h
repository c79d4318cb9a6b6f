/* Reading an image where it lies: in this process's memory, or in a file. */
#ifndef VGPU_IMAGE_SOURCE_H
#define VGPU_IMAGE_SOURCE_H

#include "book/image_need.h"

struct source {
    int fd;        /* of the file, or of /proc/self/mem where the system call is not to be had; -1 */
    uint64_t base; /* address of the image; 0 for a file */
};

/* False when not all of it is there. */
bool source_read(const struct source *source, uint64_t at, void *into, size_t bytes);

/* How many bytes, up to so many, are there; a part of a page that is there counts in full. */
size_t source_read_some(const struct source *source, uint64_t at, void *into, size_t bytes);

struct image_need image_of_ptx(const struct source *source, uint64_t at, uint64_t most);

#endif
