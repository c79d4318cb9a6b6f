/* The cards that this process is shown. NVIDIA's container runtime gives a container the device nodes of the cards that
 * NVIDIA_VISIBLE_DEVICES names, and the driver then enumerates those alone, in the host's order. There is no runtime in
 * front of an emulated machine, so its libraries look at the variable themselves. Without it, or with "all", every card is
 * seen, as on the host; "none", "void" and an empty value show none, and an item that names nothing is passed over. Of a card
 * of which only instances are named, only those are seen. */
#define _GNU_SOURCE
#include "core.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *wish; /* NVIDIA_VISIBLE_DEVICES as this process found it when it attached; NULL: everything */
static unsigned shown[MACHINE_CARDS];
static unsigned shown_count;

static bool is_uuid(const char *uuid, const char *item, size_t length)
{
    return strlen(uuid) == length && strncasecmp(uuid, item, length) == 0;
}

/* An index, or a card's UUID. */
static bool names_card(const struct machine_state *m, const char *item, size_t length, unsigned card)
{
    if (isdigit((unsigned char)*item)) {
        char *end;
        return strtoul(item, &end, 10) == card && end == item + length;
    }
    return is_uuid(m->card[card].uuid, item, length);
}

/* Whether an item of the list names the card, or that instance on it. */
static bool listed(const struct machine_state *m, unsigned card, const char *instance)
{
    for (const char *text = wish;; text++) {
        size_t length = strcspn(text, ",");
        if (length > 0 && (names_card(m, text, length, card) || (instance && is_uuid(instance, text, length))))
            return true;
        text += length;
        if (*text == '\0')
            return false;
    }
}

static bool instance_listed(const struct machine_state *m, unsigned card)
{
    const struct machine_card *c = &m->card[card];
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        for (unsigned i = 0; LOAD(&c->instances[g].used) && i < MACHINE_INSTANCES; i++)
            if (LOAD(&c->instances[g].compute[i].used) && listed(m, card, c->instances[g].compute[i].uuid))
                return true;
    return false;
}

void visible_look(const struct machine_state *m)
{
    const char *text = getenv("NVIDIA_VISIBLE_DEVICES");
    free(wish);
    wish = text && strcmp(text, "all") != 0 ? strdup(text) : NULL;
    unsigned count = 0;
    for (unsigned card = 0; card < m->cards; card++)
        if (!wish || listed(m, card, NULL) || instance_listed(m, card))
            shown[count++] = card;
    shown_count = count;
}

bool visible_instance(const struct machine_state *m, unsigned card, const char *uuid)
{
    return !wish || listed(m, card, uuid);
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
