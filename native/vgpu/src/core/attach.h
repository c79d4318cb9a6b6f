/*
 * Attaching never fails: a region that is unusable (read-only or full disk, foreign owner, symbolic link, other layout
 * with live processes) costs one error line, and the limits of the environment are enforced for this process alone.
 */
#ifndef VGPU_ATTACH_H
#define VGPU_ATTACH_H

#include "core/config.h"
#include "core/region_map.h"

void region_attach(struct region_map *map, const struct config *config);

#endif
