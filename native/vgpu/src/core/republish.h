/* Under a limits page: what monitors are told of this process is what its own books say, whatever somebody wrote into its slot. */
#ifndef VGPU_REPUBLISH_H
#define VGPU_REPUBLISH_H

#include "core/region_map.h"

void slot_republish(struct region_map *map);

#endif
