/*
 * Attaching never fails: a region that is unusable (read-only or full disk, foreign owner, symbolic link, other layout
 * with live processes) costs one error line, and the limits of the environment are enforced for this process alone.
 */
#ifndef VGPU_ATTACH_H
#define VGPU_ATTACH_H

#include "core/config.h"
#include "core/region_map.h"

void region_attach(struct region_map *map, const struct config *config);

/* Under a limits page, now and then: what somebody wrote over of head, limits and this process's slot says again what it should. */
void region_repair(struct region_map *map, const struct config *config);

#endif
