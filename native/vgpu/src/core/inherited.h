/*
 * The share of `pumice run` that this process belongs to, when its environment no longer says so. Whoever starts in a share takes
 * along a descriptor of its region, and a mark that tells the share's first process (src/pumice/adapters/bookings/processes.py).
 */
#ifndef VGPU_INHERITED_H
#define VGPU_INHERITED_H

#include <stddef.h>

enum inherited { INHERITED_NONE, INHERITED_FOUND, INHERITED_LOST };

/* LOST: the process belongs to a share of which nothing tells the region any more. */
enum inherited inherited_region(char *path, size_t bytes);

#endif
