/* cuInit: which cards and instances this process sees (CUDA_VISIBLE_DEVICES), its slot on the machine, and its end. */
#define _GNU_SOURCE
#include "cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct cuda_process cu = {.slot = -1};

static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER;

CUresult not_ready(void)
{
    return cu.forked ? CUDA_ERROR_NOT_INITIALIZED
           : atomic_load(&cu.ready) == 2 ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
}

/* ---- visible devices ---- */

void uuid_bytes(const char *text, unsigned char out[16])
{
    memset(out, 0, 16);
    const char *at = strchr(text, '-');
    for (int nibble = 0; at && *at && nibble < 32; at++) {
        if (!isxdigit((unsigned char)*at))
            continue;
        int value = isdigit((unsigned char)*at) ? *at - '0' : tolower((unsigned char)*at) - 'a' + 10;
        out[nibble / 2] = (unsigned char)(out[nibble / 2] << 4 | value);
        nibble++;
    }
}

static struct device whole_card(unsigned card)
{
    struct device d = {.card = card, .gi_id = MACHINE_NONE, .ci_id = MACHINE_NONE, .sm_count = card_at(card)->sm_count};
    uuid_bytes(card_at(card)->uuid, d.uuid);
    return d;
}

static struct device instance(unsigned card, unsigned gi, unsigned ci)
{
    const struct machine_card *c = card_at(card);
    const struct machine_gpu_instance *g = &c->instances[gi];
    const struct machine_profile *p = &c->profiles[g->profile];
    struct device d = {.card = card, .lane = gi + 1, .gi_id = g->id, .ci_id = g->compute[ci].id};
    d.sm_count = p->slices ? p->sm_count * g->compute[ci].slices / p->slices : p->sm_count;
    uuid_bytes(g->compute[ci].uuid, d.uuid);
    return d;
}

/* The first compute instance of the card that `uuid` names; NULL names the first of all. */
static bool find_instance(unsigned card, const char *uuid, size_t length, struct device *out)
{
    const struct machine_card *c = card_at(card);
    int best = -1, best_ci = 0;
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++) {
        for (unsigned i = 0; c->instances[g].used && i < MACHINE_INSTANCES; i++) {
            const struct machine_compute_instance *ci = &c->instances[g].compute[i];
            if (!ci->used || !visible_instance(the_machine, card, ci->uuid) || (uuid && strncasecmp(ci->uuid, uuid, length) != 0))
                continue;
            if (best < 0 || c->instances[g].id < c->instances[best].id) {
                best = (int)g;
                best_ci = (int)i;
            }
        }
    }
    if (best >= 0)
        *out = instance(card, (unsigned)best, (unsigned)best_ci);
    return best >= 0;
}

/* The driver counts devices from the fastest on, unless CUDA_DEVICE_ORDER=PCI_BUS_ID; equals keep the order of the bus. */
static unsigned order[MACHINE_CARDS];

static uint64_t speed_of(unsigned card)
{
    const struct machine_card *c = card_at(card);
    return (uint64_t)c->sm_count * c->clock_sm_max_mhz * (1 + c->cc_major);
}

static void order_cards(void)
{
    const char *wish = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = wish && strcmp(wish, "PCI_BUS_ID") == 0;
    for (unsigned i = 0; i < visible_count(); i++) {
        unsigned card = visible_card(i), place = i;
        for (; !by_bus && place > 0 && speed_of(order[place - 1]) < speed_of(card); place--)
            order[place] = order[place - 1];
        order[place] = card;
    }
}

/* One item of CUDA_VISIBLE_DEVICES: an index, GPU-uuid or MIG-uuid (or the beginning of one). */
static bool parse_item(const char *item, size_t length, struct device *out)
{
    char *end;
    if (isdigit((unsigned char)*item)) {
        unsigned long index = strtoul(item, &end, 10);
        if (end != item + length || index >= visible_count() || card_lost(order[index]))
            return false;
        unsigned card = order[index];
        if (card_at(card)->mig_mode)
            return find_instance(card, NULL, 0, out);
        *out = whole_card(card);
        return true;
    }
    for (unsigned card = 0; card < the_machine->cards; card++) {
        if (card_lost(card) || visible_index(card) < 0)
            continue;
        const struct machine_card *c = card_at(card);
        if (strncasecmp(item, "MIG-", 4) == 0) {
            if (c->mig_mode && find_instance(card, item, length, out))
                return true;
        } else if (length > 4 && strncasecmp(c->uuid, item, length) == 0) {
            if (c->mig_mode)
                return find_instance(card, NULL, 0, out);
            *out = whole_card(card);
            return true;
        }
    }
    return false;
}

static bool seen_before(const struct device *d)
{
    for (int i = 0; i < cu.device_count; i++)
        if (memcmp(cu.devices[i].uuid, d->uuid, 16) == 0)
            return true;
    return false;
}

/* An instance stands alone: a process sees one MIG device and nothing else. An item that names nothing ends the list. */
static void list_devices(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    cu.device_count = 0;
    order_cards();
    if (text) {
        while (cu.device_count < MACHINE_CARDS) {
            while (*text == ' ')
                text++;
            size_t length = strcspn(text, ",");
            size_t trimmed = length;
            while (trimmed > 0 && text[trimmed - 1] == ' ')
                trimmed--;
            struct device d;
            if (trimmed == 0 || !parse_item(text, trimmed, &d) || seen_before(&d))
                break;
            cu.devices[cu.device_count++] = d;
            if (text[length] != ',')
                break;
            text += length + 1;
        }
    } else {
        for (unsigned i = 0; i < visible_count(); i++) {
            unsigned card = order[i];
            struct device d;
            if (card_lost(card))
                continue;
            if (!card_at(card)->mig_mode)
                cu.devices[cu.device_count++] = whole_card(card);
            else if (find_instance(card, NULL, 0, &d))
                cu.devices[cu.device_count++] = d;
        }
    }
    for (int i = 0; i < cu.device_count; i++) {
        if (cu.devices[i].lane > 0) { /* the first instance wins when there is one in front, else whole cards do */
            if (i == 0)
                cu.device_count = 1;
            else
                memmove(&cu.devices[i], &cu.devices[i + 1], (size_t)(cu.device_count-- - i - 1) * sizeof cu.devices[0]), i--;
        }
    }
}

/* ---- begin and end ---- */

/* A forked child has the parent's memory but not its driver: it stays uninitialised, as with the real one. */
static void in_child(void)
{
    if (atomic_load(&cu.ready) == 1) {
        cu.forked = true;
        cu.slot = -1;
        atomic_store(&cu.ready, 0);
    }
}

static bool claim_slot(void)
{
    cu.slot = process_claim();
    if (cu.slot < 0)
        return false;
    timeline_reset();
    for (int i = 0; i < cu.device_count; i++) {
        struct machine_account *a = account_at(cu.devices[i].card, cu.slot);
        a->lane = cu.devices[i].lane;
        a->gi_id = cu.devices[i].gi_id;
        a->ci_id = cu.devices[i].ci_id;
        mps_bind(a, &cu.devices[i], i);
    }
    return true;
}

static CUresult initialise(void)
{
    if (cu.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!machine_attach() || the_machine->cards == 0)
        return CUDA_ERROR_NO_DEVICE;
    int fault = fault_check("cuInit");
    if (fault)
        return fault;
    if (atomic_load(&cu.ready) == 1)
        return CUDA_SUCCESS;
    list_devices();
    CUresult joined = mps_join();
    if (joined)
        return joined;
    cu.device_count = mps_visible(cu.devices, cu.device_count);
    if (cu.device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (!claim_slot())
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_atfork(NULL, NULL, in_child);
    atomic_store_explicit(&cu.ready, 1, memory_order_release);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&initialising);
    CUresult rc = initialise();
    pthread_mutex_unlock(&initialising);
    return rc;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (!machine_attach()) {
        *version = 0;
        return CUDA_SUCCESS;
    }
    int fault = fault_check("cuDriverGetVersion");
    if (!fault)
        *version = (int)the_machine->cuda_version;
    return fault;
}

__attribute__((destructor)) static void at_exit(void)
{
    if (atomic_exchange(&cu.ready, 2) == 1 && cu.slot >= 0)
        process_leave(cu.slot);
    if (the_machine && !cu.forked)
        clock_leave();
}
