/* Which cards this process is shown. NVIDIA's container runtime gives a container the device nodes of the cards that
 * NVIDIA_VISIBLE_DEVICES names, and the driver then enumerates those alone, in the host's order. There is no runtime in
 * front of an emulated machine, so its libraries look at the variable themselves. Without it, or with "all", every card is
 * seen, as on the host; "none", "void" and an empty value show none, and an item that names nothing is passed over. */
#define _GNU_SOURCE
#include "core.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static unsigned shown[MACHINE_CARDS];
static unsigned shown_count;

static bool has_instance(const struct machine_card *c, const char *uuid, size_t length)
{
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        for (unsigned i = 0; LOAD(&c->instances[g].used) && i < MACHINE_INSTANCES; i++) {
            const struct machine_compute_instance *ci = &c->instances[g].compute[i];
            if (LOAD(&ci->used) && strlen(ci->uuid) == length && strncasecmp(ci->uuid, uuid, length) == 0)
                return true;
        }
    return false;
}

/* An index, a card's UUID, or the UUID of an instance on it. */
static bool names_card(const struct machine_state *m, const char *item, size_t length, unsigned card)
{
    const struct machine_card *c = &m->card[card];
    if (isdigit((unsigned char)*item)) {
        char *end;
        return strtoul(item, &end, 10) == card && end == item + length;
    }
    return (strlen(c->uuid) == length && strncasecmp(c->uuid, item, length) == 0) || has_instance(c, item, length);
}

static bool listed(const struct machine_state *m, const char *text, unsigned card)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        if (length > 0 && names_card(m, text, length, card))
            return true;
        if (text[length] == '\0')
            return false;
        text += length + 1;
    }
}

void visible_look(const struct machine_state *m)
{
    const char *text = getenv("NVIDIA_VISIBLE_DEVICES");
    unsigned count = 0;
    for (unsigned card = 0; card < m->cards; card++)
        if (!text || strcmp(text, "all") == 0 || listed(m, text, card))
            shown[count++] = card;
    shown_count = count;
}

unsigned visible_count(void)
{
    return shown_count;
}

unsigned visible_card(unsigned index)
{
    return shown[index];
}

int visible_index(unsigned card)
{
    for (unsigned i = 0; i < shown_count; i++)
        if (shown[i] == card)
            return (int)i;
    return -1;
}
