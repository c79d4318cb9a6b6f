/*
 * Where the region lies when the environment does not say: a shell of kubectl exec, an ssh session, a child with a scrubbed
 * environment. Without this they would run unlimited (HAMi-core src).
 */
#ifndef VGPU_FIND_REGION_H
#define VGPU_FIND_REGION_H

#include <stdbool.h>
#include <stddef.h>

/* The only valid *.cache file beside the library, in /tmp/vgpu or in /usr/local/vgpu; false when there is none, or several. */
bool find_region(char *path, size_t bytes);

/*
 * The share of `pumice run` that this process belongs to, when its environment no longer says so. Whoever starts in a share takes
 * along a descriptor of its region, and a mark that tells the share's first process (src/pumice/adapters/bookings/processes.py).
 */
enum inherited { INHERITED_NONE, INHERITED_FOUND, INHERITED_LOST };

/* LOST: the process belongs to a share of which nothing tells the region any more. */
enum inherited inherited_region(char *path, size_t bytes);

#endif
