/* The resources of a green context: processors (SM) and work queues. Which processors a resource stands for is in its internal part;
 * a program may have changed it, so all is looked at before it is believed.
 *
 * Processors go in groups by the card's generation (cuda.h 13.5, "Green Contexts"); real cards have clusters of unequal size, and
 * make fewer large groups than are counted here. */
#define _GNU_SOURCE
#include "green.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x67726e31u
#define OF_QUERY 0u
enum { IGNORE_COSCHEDULING = 1, LARGEST_CLUSTERS = 2, BACKFILL = 1 };

struct inside { uint32_t magic; int32_t device; uint32_t split; struct sm_set sms; };
_Static_assert(sizeof(struct inside) <= sizeof ((CUdevResource *)0)->internal, "it must fit the driver's own bytes");

unsigned sm_set_size(const struct sm_set *set)
{
    unsigned size = 0;
    for (size_t i = 0; i < sizeof set->words / sizeof *set->words; i++)
        size += (unsigned)__builtin_popcount(set->words[i]);
    return size;
}

static struct sm_set lowest(struct sm_set *from, unsigned count)
{
    struct sm_set taken = {{0}};
    for (unsigned sm = 0; sm < MOST_SMS && count > 0; sm++)
        if (sm_in(from, sm)) {
            from->words[sm / 32] &= ~(1u << sm % 32);
            taken.words[sm / 32] |= 1u << sm % 32;
            count--;
        }
    return taken;
}

static bool groups_of_eight(CUdevice device)
{
    return card_at(cu.devices[device].card)->cc_major >= 9;
}

static unsigned alignment_of(CUdevice device)
{
    return groups_of_eight(device) ? 8 : card_at(cu.devices[device].card)->cc_major >= 7 ? 2 : 1;
}

static unsigned connections(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    long wished = text ? strtol(text, NULL, 10) : 8;
    return wished < 1 ? 8 : wished > 32 ? 32 : (unsigned)wished;
}

struct part part_of_device(CUdevice device)
{
    struct part all = {.device = device, .concurrency = connections()};
    for (unsigned sm = 0; sm < cu.devices[device].sm_count && sm < MOST_SMS; sm++)
        all.sms.words[sm / 32] |= 1u << sm % 32;
    return all;
}

static CUdevResource resource_of(CUdevice device, const struct sm_set *sms, uint32_t split, unsigned alignment, unsigned flags)
{
    struct inside inside = {MAGIC, device, split, *sms};
    CUdevResource r = {.type = DEV_RESOURCE_SM, .of.sm = {sm_set_size(sms), alignment, alignment, flags}};
    memcpy(r.internal, &inside, sizeof inside);
    return r;
}

CUresult part_describe(const struct part *part, int type, CUdevResource *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct inside inside = {MAGIC, part->device, OF_QUERY, part->sms};
    CUdevResource r = {.type = type};
    memcpy(r.internal, &inside, sizeof inside);
    if (type == DEV_RESOURCE_SM) {
        r = resource_of(part->device, &part->sms, OF_QUERY, alignment_of(part->device), 0);
    } else if (type == DEV_RESOURCE_QUEUES_WANTED) {
        r.of.queues_wanted.device = part->device;
        r.of.queues_wanted.wqConcurrencyLimit = part->concurrency;
        r.of.queues_wanted.sharingScope = part->scope;
    } else if (type != DEV_RESOURCE_QUEUES) { /* of queues that are there is nothing to be told */
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    *out = r;
    return CUDA_SUCCESS;
}

/* ---- believing what a program hands in ---- */

static bool read_inside(const CUdevResource *r, struct inside *inside)
{
    memcpy(inside, r->internal, sizeof *inside);
    return inside->magic == MAGIC && inside->device >= 0 && inside->device < cu.device_count;
}

static CUresult read_sms(const CUdevResource *r, struct inside *inside)
{
    if (!r || !read_inside(r, inside))
        return CUDA_ERROR_INVALID_VALUE;
    if (r->type != DEV_RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    struct part all = part_of_device(inside->device);
    bool inward = true;
    for (size_t i = 0; i < sizeof all.sms.words / sizeof *all.sms.words; i++)
        inward &= (inside->sms.words[i] & ~all.sms.words[i]) == 0;
    return inward && r->of.sm.smCount == sm_set_size(&inside->sms) && r->of.sm.smCount > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- splitting ---- */

static uint32_t new_split(void)
{
    static _Atomic uint32_t splits;
    return (atomic_fetch_add(&splits, 1) & 0x7fffffff) + 1;
}

static void give_rest(CUdevResource *out, const struct inside *from, const struct sm_set *left, uint32_t split, unsigned alignment)
{
    if (out && sm_set_size(left) > 0)
        *out = resource_of(from->device, left, split, alignment, 0);
    else if (out)
        memset(out, 0, sizeof *out);
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
                                            CUdevResource *remainder, unsigned int flags, unsigned int least)
{
    ENTER(cuDevSmResourceSplitByCount);
    struct inside from;
    CUresult rc = groups ? read_sms(input, &from) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    unsigned available = sm_set_size(&from.sms);
    if (flags > (IGNORE_COSCHEDULING | LARGEST_CLUSTERS) || least > available ||
        (flags & LARGEST_CLUSTERS && !groups_of_eight(from.device)))
        return CUDA_ERROR_INVALID_VALUE;
    if (from.split != OF_QUERY) /* what was split becomes a context first */
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned alignment = alignment_of(from.device), unit = flags & IGNORE_COSCHEDULING && alignment > 2 ? 2 : alignment;
    unsigned size = least > unit ? (least + unit - 1) / unit * unit : unit, count = available / size;
    if (count == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result) {
        count = *groups < count ? *groups : count;
        uint32_t split = new_split();
        struct sm_set left = from.sms;
        for (unsigned i = 0; i < count; i++) {
            struct sm_set part = lowest(&left, size);
            result[i] = resource_of(from.device, &part, split, unit, 0);
        }
        give_rest(remainder, &from, &left, split, unit);
    }
    *groups = count;
    return CUDA_SUCCESS;
}

struct group { unsigned int count, together, together_if_possible, flags, reserved[12]; };

/* The processors that the group comes to, out of so many; false: it cannot be had. 0 is an answer to who only asks. */
static bool group_size(struct group *g, CUdevice device, unsigned of_all, unsigned left)
{
    unsigned most = groups_of_eight(device) ? 32 : 2;
    if (g->together == 0)
        g->together = alignment_of(device) < 2 ? 2 : alignment_of(device);
    if (g->together_if_possible == 0)
        g->together_if_possible = g->together;
    if (g->together % 2 || g->together > most || g->together_if_possible % g->together || g->flags > BACKFILL)
        return false;
    if (g->count == 0)
        g->count = g->flags & BACKFILL ? left / 2 * 2 : left / g->together * g->together;
    bool whole = g->flags & BACKFILL || g->count % g->together == 0;
    return g->count <= left && g->count <= of_all && g->count % 2 == 0 && whole;
}

EXPORT CUresult cuDevSmResourceSplit(CUdevResource *result, unsigned int groups, const CUdevResource *input, CUdevResource *remainder,
                                     unsigned int flags, struct group *wanted)
{
    ENTER(cuDevSmResourceSplit);
    struct inside from;
    CUresult rc = wanted && groups > 0 && flags == 0 ? read_sms(input, &from) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    unsigned of_all = sm_set_size(&from.sms), left = of_all;
    for (unsigned i = 0; i < groups; i++) {
        if (!group_size(&wanted[i], from.device, of_all, left) || (result && wanted[i].count < wanted[i].together))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        left -= wanted[i].count;
    }
    uint32_t split = new_split();
    struct sm_set rest = from.sms;
    for (unsigned i = 0; i < groups; i++) {
        struct sm_set part = lowest(&rest, wanted[i].count);
        if (result)
            result[i] = resource_of(from.device, &part, split, wanted[i].together, wanted[i].flags);
    }
    if (result)
        give_rest(remainder, &from, &rest, split, alignment_of(from.device));
    return CUDA_SUCCESS;
}

/* ---- descriptors: several resources of one device; processors of one split, or one resource of them ---- */

static CUresult add_sms(struct part *part, const CUdevResource *r, uint32_t *split, unsigned *alignment, bool *some)
{
    struct inside inside;
    CUresult rc = read_sms(r, &inside);
    if (rc)
        return rc;
    if (*some && (inside.split == OF_QUERY || inside.split != *split || r->of.sm.smCoscheduledAlignment != *alignment))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (size_t i = 0; i < sizeof inside.sms.words / sizeof *inside.sms.words; i++)
        part->sms.words[i] = (*some ? part->sms.words[i] : 0) | inside.sms.words[i];
    *split = inside.split;
    *alignment = r->of.sm.smCoscheduledAlignment;
    *some = true;
    return CUDA_SUCCESS;
}

static CUresult add_queues(struct part *part, const CUdevResource *r)
{
    if (r->type != DEV_RESOURCE_QUEUES_WANTED) /* those of another context: there is nothing about them to be told */
        return r->type == DEV_RESOURCE_QUEUES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (r->of.queues_wanted.device != part->device || r->of.queues_wanted.wqConcurrencyLimit == 0 ||
        (r->of.queues_wanted.sharingScope & ~1))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    part->concurrency = r->of.queues_wanted.wqConcurrencyLimit;
    part->scope = r->of.queues_wanted.sharingScope;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(void **out, CUdevResource *resources, unsigned int count)
{
    ENTER(cuDevResourceGenerateDesc);
    struct inside first, inside;
    if (!out || !resources || count == 0 || !read_inside(&resources[0], &first))
        return CUDA_ERROR_INVALID_VALUE;
    struct part part = part_of_device(first.device);
    uint32_t split = OF_QUERY;
    unsigned alignment = 0;
    bool some = false;
    for (unsigned i = 0; i < count; i++) {
        if (!read_inside(&resources[i], &inside))
            return CUDA_ERROR_INVALID_VALUE;
        CUresult rc = inside.device != first.device         ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
                      : resources[i].type == DEV_RESOURCE_SM ? add_sms(&part, &resources[i], &split, &alignment, &some)
                                                             : add_queues(&part, &resources[i]);
        if (rc)
            return rc;
    }
    struct resources *r = handle_new(K_RESOURCES);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->part = part;
    *out = handle_of(K_RESOURCES, r);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, int type)
{
    ENTER_DEVICE(cuDeviceGetDevResource, device);
    struct part all = part_of_device(device);
    return part_describe(&all, type, out);
}
