/* The table of joints (core/joints.h) as it is read: the file is the container's own, so nothing in it is taken on trust. */
#ifndef VGPU_JOINT_TABLE_H
#define VGPU_JOINT_TABLE_H

#include "core/region_map.h"

/* How many places to look at. */
uint32_t joints_places(const struct region_map *map);

/* NULL: what is there is no joint, and nobody's. */
struct joint *joint_at(struct region_map *map, uint32_t place);

/* Which of the holders that slot is; -1: none. */
int joint_place_of(const struct joint *joint, int slot);

/* Whether that slot is among the holders of any. */
bool joints_hold(struct region_map *map, int slot);

#endif
