/* NVLink: which cards are joined, by links of their own or through a switch. */
#include "core.h"

static bool has_link_to(unsigned card, uint32_t remote)
{
    const struct machine_card *c = card_at(card);
    for (unsigned l = 0; l < c->link_count && l < MACHINE_LINKS; l++)
        if (c->links[l].version && RELAXED(&c->links[l].up) && c->links[l].remote_card == remote)
            return true;
    return false;
}

bool card_on_switch(unsigned card)
{
    return has_link_to(card, MACHINE_NONE);
}

bool cards_linked(unsigned one, unsigned other)
{
    return has_link_to(one, other) || (card_on_switch(one) && card_on_switch(other));
}

enum { BRAND_GEFORCE = 5 };

/* GeForce cards lost the way over PCIe with Turing. */
static bool peer_by_pcie(const struct machine_card *c)
{
    return c->cc_major >= 6 && (c->brand != BRAND_GEFORCE || c->cc_major * 10 + c->cc_minor < 75);
}

bool cards_peers(unsigned one, unsigned other)
{
    const struct machine_card *a = card_at(one), *b = card_at(other);
    bool alike = one != other && a->architecture == b->architecture && !RELAXED(&a->mig_mode) && !RELAXED(&b->mig_mode);
    return alike && ((peer_by_pcie(a) && peer_by_pcie(b)) || cards_linked(one, other));
}
