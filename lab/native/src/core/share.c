/* Memory that several processes hold: it stays with the card until the last of them lets go, and the first of them that still holds it
 * pays. So does the driver count (open-gpu-kernel-modules, pidInfo: memPrivate is what has one holder, whoever made it). */
#include "core.h"

#include <string.h>

static struct machine_share *share_at(uint32_t share) { return &the_machine->shares[share - 1]; }

static bool still_is(uint32_t share, uint64_t id)
{
    return share > 0 && share <= MACHINE_SHARES && share_at(share)->holders > 0 && share_at(share)->id == id;
}

static void add(unsigned card, unsigned slot, int64_t bytes)
{
    struct machine_account *a = account_at(card, (int)slot);
    struct machine_lane *lane = &card_at(card)->lanes[a->lane];
    SET(&a->bytes, a->bytes + (uint64_t)bytes);
    SET(&lane->used_bytes, lane->used_bytes + (uint64_t)bytes);
    if (bytes > 0 && a->bytes > a->peak_bytes)
        SET(&a->peak_bytes, a->bytes);
}

/* machine lock held. False: nobody holds it any more, and who was the last gives it back. */
static bool remove_holder(struct machine_share *s, unsigned at)
{
    unsigned payer = s->slots[0];
    memmove(&s->slots[at], &s->slots[at + 1], (s->holders - at - 1) * sizeof *s->slots);
    s->holders--;
    if (s->holders > 0 && at == 0 && s->slots[0] != payer) {
        card_lock(s->card);
        add(s->card, payer, -(int64_t)s->bytes);
        add(s->card, s->slots[0], (int64_t)s->bytes);
        card_unlock(s->card);
    }
    return s->holders > 0;
}

uint32_t share_new(unsigned card, int slot, uint64_t bytes, uint64_t *id)
{
    uint32_t share = 0;
    lock_take(&the_machine->lock);
    for (uint32_t i = 1; i <= MACHINE_SHARES && share == 0; i++)
        if (share_at(i)->holders == 0)
            share = i;
    if (share > 0) {
        struct machine_share *s = share_at(share);
        s->id = *id = ++the_machine->share_ids;
        s->bytes = bytes;
        s->card = card;
        s->slots[0] = (uint16_t)slot;
        s->holders = 1;
    }
    lock_give(&the_machine->lock);
    return share;
}

bool share_join(uint32_t share, uint64_t id, int slot)
{
    lock_take(&the_machine->lock);
    bool there = still_is(share, id) && share_at(share)->holders < MACHINE_HOLDERS;
    if (there)
        share_at(share)->slots[share_at(share)->holders++] = (uint16_t)slot;
    lock_give(&the_machine->lock);
    return there;
}

bool share_leave(uint32_t share, int slot)
{
    bool others = false;
    lock_take(&the_machine->lock);
    struct machine_share *s = share_at(share);
    for (unsigned i = 0; i < s->holders; i++)
        if (s->slots[i] == slot) {
            others = remove_holder(s, i);
            break;
        }
    lock_give(&the_machine->lock);
    return others;
}

void shares_end_of(unsigned slot)
{
    for (uint32_t share = 1; share <= MACHINE_SHARES; share++) {
        struct machine_share *s = share_at(share);
        for (unsigned i = s->holders; i-- > 0;) /* from the last: it pays once, for the first that is somebody else's */
            if (i < s->holders && s->slots[i] == slot)
                remove_holder(s, i);
    }
}
