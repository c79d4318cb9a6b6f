/*
 * Where the region lies when the environment does not say: a shell of kubectl exec, an ssh session, a child with a scrubbed
 * environment. Without this they would run unlimited (spec hami-core 2.3).
 */
#ifndef VGPU_FIND_REGION_H
#define VGPU_FIND_REGION_H

#include <stdbool.h>
#include <stddef.h>

/* The only valid *.cache file beside the library, in /tmp/vgpu or in /usr/local/vgpu; false when there is none, or several. */
bool find_region(char *path, size_t bytes);

#endif
