#include "core/joints.h"

#include "core/joint_table.h"
#include "core/ledger.h"
#include "core/republish.h"
#include "core/slots.h"
#include "core/turn.h"
#include "core/turn_wait.h"
#include "core/waits.h"

#include <string.h>

enum { ATTEMPTS = 20 };

static bool take_turn(struct region_map *map)
{
    struct wait wait = {0, 0};
    if (map->joints == NULL || map->slot < 0)
        return false;
    bool taken = turn_take(map, &map->joints->turn, &wait);
    if (wait.begun_ns != 0)
        wait_end(&wait, !taken);
    return taken;
}

static void charge(struct region_map *map, const struct joint *joint)
{
    struct region_slot *payer = &map->region->procs[joint->holders[0]];
    shared_add(&payer->used[joint->device].total, joint->bytes);
    shared_add(&payer->used[joint->device].data_size, joint->bytes);
    shared_add(&payer->seqlock, 2);
}

/*
 * Who has the turn may be without a processor. Nothing can be refused any more for what is exported or imported by then, and what the table does
 * not know is free as soon as one of its holders lets go.
 */
static bool take_turn_patiently(struct region_map *map)
{
    bool taken = false;
    for (int attempt = 0; attempt < ATTEMPTS && !taken && map->joints != NULL && map->slot >= 0; attempt++)
        taken = take_turn(map);
    return taken;
}

/* In turn. The next pays before the one who did gives back. */
static void take_out(struct region_map *map, struct joint *joint, int at)
{
    memmove(&joint->holders[at], &joint->holders[at + 1], (size_t)(joint->count - at - 1) * sizeof *joint->holders);
    joint->count--;
    if (at == 0 && joint->count > 0)
        charge(map, joint);
}

uint32_t joint_new(struct region_map *map, int device, uint64_t bytes, uint64_t descriptors, uint64_t words)
{
    if (map->ledger != NULL)
        return ledger_joint_new(map, device, bytes, descriptors, words);
    if (!take_turn_patiently(map))
        return 0;
    uint32_t place = 0, high = joints_places(map);
    while (place < high && joint_at(map, place) != NULL)
        place++;
    if (place < JOINTS) {
        map->joints->joints[place] = (struct joint){.descriptors = descriptors, .words = words, .bytes = bytes, .device = (int16_t)device,
                                                    .count = 1, .holders = {(uint16_t)map->slot}};
        if (place == high)
            shared_set(&map->joints->high, place + 1);
    }
    turn_give(&map->joints->turn);
    return place < JOINTS ? place + 1 : 0;
}

uint32_t joint_join(struct region_map *map, const struct joint_search *search, struct joint *what)
{
    if (map->ledger != NULL)
        return ledger_joint_join(map, search->name(search->sought), what);
    if (!take_turn_patiently(map))
        return 0;
    uint32_t found = 0;
    for (uint32_t place = 0, high = joints_places(map); place < high && found == 0; place++) {
        struct joint *joint = joint_at(map, place);
        if (joint == NULL || !search->is(joint, search->sought))
            continue;
        bool there = joint_place_of(joint, map->slot) >= 0;
        if (!there && joint->count == JOINT_HOLDERS)
            break;
        if (!there)
            joint->holders[joint->count++] = (uint16_t)map->slot;
        *what = *joint;
        found = place + 1;
    }
    turn_give(&map->joints->turn);
    return found;
}

bool joint_leave(struct region_map *map, uint32_t number, struct joint *what)
{
    bool paid = false;
    if (map->ledger != NULL) {
        ledger_joint_leave(map, number, what);
        return false;
    }
    if (!take_turn_patiently(map))
        return false; /* it stays booked until the process ends */
    struct joint *joint = joint_at(map, number - 1);
    int at = joint != NULL ? joint_place_of(joint, map->slot) : -1;
    if (at >= 0) {
        *what = *joint;
        paid = at == 0;
        take_out(map, joint, at);
    }
    turn_give(&map->joints->turn);
    return paid;
}

int joint_export(struct region_map *map, uint32_t number, uint64_t *descriptors)
{
    int export = -1;
    if (map->ledger != NULL)
        return ledger_joint_export(map, number, descriptors);
    if (!take_turn_patiently(map))
        return -1;
    struct joint *joint = joint_at(map, number - 1);
    if (joint != NULL && joint->descriptors != 0 && joint->exports < JOINT_EXPORTS) {
        export = (int)joint->exports++;
        *descriptors = joint->descriptors;
    }
    turn_give(&map->joints->turn);
    return export;
}

bool joint_name(struct region_map *map, uint32_t number, uint64_t words)
{
    bool named = false;
    if (map->ledger != NULL)
        return ledger_joint_name(map, number, words);
    if (!take_turn_patiently(map))
        return false;
    struct joint *joint = joint_at(map, number - 1);
    if (joint != NULL && joint->words == 0)
        joint->words = words;
    named = joint != NULL && joint->words == words;
    turn_give(&map->joints->turn);
    return named;
}

static void take_out_the_dead(struct region_map *map)
{
    for (uint32_t place = 0, high = joints_places(map); place < high; place++)
        for (int at = JOINT_HOLDERS - 1; at >= 0; at--) { /* from the last: who pays is charged once */
            struct joint *joint = joint_at(map, place);
            if (joint == NULL || at >= joint->count)
                continue;
            int slot = joint->holders[at];
            if (slot != map->slot && (slot_is_free(map, slot) || slot_is_dead(map, slot)))
                take_out(map, joint, at);
        }
}

int joints_sweep(struct region_map *map)
{
    bool any = map->joints != NULL && joints_places(map) > 0, taken = any && take_turn(map);
    if (taken) {
        take_out_the_dead(map);
        turn_give(&map->joints->turn);
    }
    int emptied = slots_sweep(map);
    return any && !taken ? -1 : emptied;
}

/* Nobody else is there yet, or has the lock under which regions are made. */
void joints_format(struct region_map *map, bool (*keep)(int slot, void *data), void *data)
{
    shared_set(&map->joints->turn, 0);
    for (uint32_t place = 0, high = joints_places(map); place < high; place++)
        for (int at = JOINT_HOLDERS - 1; at >= 0; at--) {
            struct joint *joint = joint_at(map, place);
            if (joint != NULL && at < joint->count && (keep == NULL || !keep(joint->holders[at], data)))
                take_out(map, joint, at);
        }
}

void joints_leave_slot(struct region_map *map)
{
    slot_republish(map);
    bool taken = map->slot >= 0 && joints_hold(map, map->slot) && take_turn(map);
    slot_leave(map);
    if (taken)
        turn_give(&map->joints->turn);
}
