#include "core/joint_table.h"

uint32_t joints_places(const struct region_map *map)
{
    uint32_t high = shared_get(&map->joints->high);
    return high < JOINTS ? high : JOINTS;
}

struct joint *joint_at(struct region_map *map, uint32_t place)
{
    struct joint *joint = &map->joints->joints[place];
    bool sound = joint->count > 0 && joint->count <= JOINT_HOLDERS && joint->device >= 0 && joint->device < REGION_DEVICES;
    for (int i = 0; sound && i < joint->count; i++)
        sound = joint->holders[i] < REGION_SLOTS;
    return sound ? joint : NULL;
}

int joint_place_of(const struct joint *joint, int slot)
{
    for (int i = 0; i < joint->count; i++)
        if (joint->holders[i] == slot)
            return i;
    return -1;
}

bool joints_hold(struct region_map *map, int slot)
{
    if (map->joints == NULL)
        return false;
    for (uint32_t place = 0, high = joints_places(map); place < high; place++) {
        const struct joint *joint = joint_at(map, place);
        if (joint != NULL && joint_place_of(joint, slot) >= 0)
            return true;
    }
    return false;
}
