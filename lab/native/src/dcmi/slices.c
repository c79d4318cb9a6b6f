/* vNPUs: making and destroying them, and the records of them (Huawei's DCMI API reference: main command 52). */
#define _GNU_SOURCE
#include "dcmi.h"

#include <stdio.h>
#include <string.h>

#define MAIN_SLICES 52
#define MAIN_SHARE 0x8001
enum sub_command { SUB_ONE = 0, SUB_TOTALS = 1, SUB_FREE = 2, SUB_ACTIVITY = 5 };

/* ---- what is taken ---- */

static struct npu_size taken(const struct npu_chip *chip)
{
    struct npu_size sum = {0};
    for (unsigned i = 0; i < NPU_SLICES; i++) {
        if (!chip->slices[i].used)
            continue;
        const struct npu_size *s = &chip->templates[chip->slices[i].template].size;
        sum.cores += s->cores;
        sum.cpus += s->cpus;
        sum.memory_mib += s->memory_mib;
        for (unsigned u = 0; u < NPU_UNITS; u++)
            sum.media[u] += s->media[u];
    }
    return sum;
}

static _Thread_local char refusal[128];

/* Not DCMI's: why this thread's last slice was refused, as the driver writes it into its log. */
EXPORT const char *pumice_npu_refusal(void)
{
    return refusal;
}

static bool enough(const struct npu_chip *chip, const char *unit, uint64_t need, uint64_t used, uint64_t total)
{
    if (!total || used + need <= total)
        return true;
    snprintf(refusal, sizeof refusal, "check %s num failed, phy_id:%u, core_need:%llu, used:%llu, total:%llu", unit,
             chip->physical, (unsigned long long)need, (unsigned long long)used, (unsigned long long)total);
    return false;
}

static bool room_for(const struct npu_chip *chip, const struct npu_size *more)
{
    static const char *const media[] = {"jpegd", "jpege", "vpc", "vdec", "pngd", "venc"};
    struct npu_size held = taken(chip);
    bool room = enough(chip, "aicore", more->cores, held.cores, chip->size.cores) &&
                enough(chip, "aicpu", more->cpus, held.cpus, chip->size.cpus) &&
                enough(chip, "memory", more->memory_mib, held.memory_mib, chip->size.memory_mib);
    for (unsigned u = 0; room && u < NPU_UNITS; u++)
        room = enough(chip, media[u], more->media[u], held.media[u], chip->size.media[u]);
    return room;
}

static unsigned of_group(const struct npu_chip *chip, uint32_t group)
{
    unsigned count = 0;
    for (unsigned i = 0; i < NPU_SLICES; i++)
        count += chip->slices[i].used && chip->slices[i].group == group;
    return count;
}

static unsigned groups_free(const struct npu_chip *chip)
{
    unsigned bitmap = 0;
    for (unsigned g = 0; g < chip->groups; g++)
        bitmap |= of_group(chip, g) ? 0 : 1u << g;
    return bitmap;
}

static bool groups_for(const struct npu_chip *chip, const struct npu_size *more)
{
    unsigned wanted = (more->cores >= 2) + (more->cores >= 4);
    unsigned left = (unsigned)__builtin_popcount(groups_free(chip));
    return !chip->grouped || enough(chip, "vgroup", wanted, chip->groups - left, chip->groups);
}

static int slice_at(const struct npu_chip *chip, uint32_t id)
{
    for (unsigned i = 0; i < NPU_SLICES; i++)
        if (chip->slices[i].used && chip->slices[i].id == id)
            return (int)i;
    return -1;
}

static unsigned emptiest_group(const struct npu_chip *chip)
{
    unsigned best = 0;
    for (unsigned g = 1; g < chip->groups; g++)
        if (of_group(chip, g) < of_group(chip, best))
            best = g;
    return best;
}

/* ---- make and destroy ---- */

struct create_in {
    unsigned id, group;
    unsigned char template[32];
    unsigned char reserved[64];
};

struct create_out {
    unsigned id, bus, device, function, group;
    unsigned char reserved[32];
};

static int template_of(const struct npu_chip *chip, const unsigned char name[32])
{
    for (unsigned t = 0; t < chip->template_count; t++)
        if (strncmp(chip->templates[t].name, (const char *)name, 32) == 0)
            return (int)t;
    return -1;
}

EXPORT int dcmi_create_vdevice(int card, int device, struct create_in *in, struct create_out *out)
{
    DEVICE(dcmi_create_vdevice, card, device);
    NEED(in && out);
    struct npu_chip *chip = view.chip;
    refusal[0] = 0;
    if (npu_inside())
        return DCMI_NOT_PERMITTED;
    int t = template_of(chip, in->template);
    NEED(t >= 0 && (in->group == NPU_ANY || (chip->groups && in->group < chip->groups)));
    uint32_t first = 100 + 16 * chip->physical;
    NEED(in->id == NPU_ANY || (in->id >= first && in->id < first + chip->slices_most && slice_at(chip, in->id) < 0));
    npu_reap(chip);
    unsigned whole;
    npu_held(chip, 0, &whole);
    if (whole)
        return DCMI_BUSY; /* somebody works on the whole chip */
    if (!room_for(chip, &chip->templates[t].size) || !groups_for(chip, &chip->templates[t].size))
        return DCMI_BAD_PARAMETER;
    for (unsigned k = 0; k < chip->slices_most && k < NPU_SLICES; k++) {
        struct npu_slice *s = &chip->slices[k];
        if (s->used || (in->id != NPU_ANY && in->id != first + k))
            continue;
        uint32_t group = in->group == NPU_ANY ? emptiest_group(chip) : in->group;
        *s = (struct npu_slice){.id = first + k, .template = (uint32_t)t, .group = group, .container = NPU_FREE,
                                .generation = ++chip->generation};
        __atomic_store_n(&s->used, 1, __ATOMIC_RELEASE);
        *out = (struct create_out){.id = s->id, .group = group};
        npu_done("dcmi_create_vdevice");
        return DCMI_OK;
    }
    return DCMI_BAD_PARAMETER;
}

EXPORT int dcmi_set_destroy_vdevice(int card, int device, unsigned id)
{
    DEVICE(dcmi_set_destroy_vdevice, card, device);
    struct npu_chip *chip = view.chip;
    if (npu_inside())
        return DCMI_NOT_PERMITTED;
    int k = slice_at(chip, id);
    NEED(k >= 0);
    npu_reap(chip);
    unsigned users;
    npu_held(chip, id, &users);
    uint64_t container = chip->slices[k].container;
    if (users || (container && container != NPU_FREE))
        return DCMI_BUSY;
    __atomic_store_n(&chip->slices[k].used, 0, __ATOMIC_RELEASE);
    npu_done("dcmi_set_destroy_vdevice");
    return DCMI_OK;
}

/* Not DCMI's: what the driver learns when a container opens the slice's device file, or ends. `container` as in the record. */
EXPORT int pumice_npu_use(int card, int device, unsigned id, uint64_t container)
{
    DEVICE(pumice_npu_use, card, device);
    int k = slice_at(view.chip, id);
    NEED(k >= 0);
    view.chip->slices[k].container = container & NPU_FREE;
    npu_done("pumice_npu_use");
    return DCMI_OK;
}

/* ---- records ---- */

struct base {
    uint64_t token, token_max, task_timeout;
    unsigned group;
    unsigned char mode, reserved[31];
    unsigned pad;
};

struct computing {
    float aic, aiv;
    unsigned short dsa, rtsq, acsq, cdqm, c_core, ffts, sdma, pcie_dma;
    uint64_t memory;
    unsigned event, notify, stream, model;
    unsigned short topic_aicpu, host_ctrl, host_aicpu, device_aicpu, topic_slot, pad;
    unsigned utilization;
    uint64_t memory_total, memory_free;
    unsigned char reserved[16];
};

struct media {
    float jpegd, jpege, vpc, vdec, pngd, venc;
    unsigned char reserved[32];
};

struct slice_info {
    char name[16];
    unsigned status, in_use, vfid, group;
    uint64_t container;
    struct base base;
    struct computing computing;
    struct media media;
};

struct one {
    unsigned id, pad;
    struct slice_info info;
};

struct totals {
    unsigned count, ids[32], group_count, group_bitmap;
    struct base base;
    struct computing computing;
    struct media media;
};

struct available {
    unsigned group_count, group_bitmap;
    struct base base;
    struct computing computing;
    struct media media;
};

_Static_assert(sizeof(struct one) == 264 && sizeof(struct totals) == 360 && sizeof(struct available) == 224, "Huawei's DCMI API reference");

static struct computing computing_of(const struct npu_size *s)
{
    return (struct computing){.aic = (float)s->cores, .memory = s->memory_mib, .device_aicpu = (unsigned short)s->cpus,
                              .memory_total = s->memory_mib};
}

static struct media media_of(const struct npu_size *s)
{
    const uint32_t *m = s->media;
    return (struct media){(float)m[NPU_JPEGD], (float)m[NPU_JPEGE], (float)m[NPU_VPC], (float)m[NPU_VDEC], (float)m[NPU_PNGD],
                          (float)m[NPU_VENC], {0}};
}

static bool shows(const struct npu_view *view, const struct npu_slice *s)
{
    return s->used && (!view->slice || view->slice == s);
}

static int tell_one(const struct npu_view *view, void *buffer, unsigned *size)
{
    struct one *out = buffer;
    NEED(*size >= sizeof *out);
    int k = slice_at(view->chip, out->id);
    NEED(k >= 0 && shows(view, &view->chip->slices[k]));
    const struct npu_slice *s = &view->chip->slices[k];
    const struct npu_template *t = &view->chip->templates[s->template];
    npu_reap(view->chip);
    unsigned users;
    uint64_t bytes = npu_held(view->chip, s->id, &users);
    struct slice_info *info = &out->info;
    memset(info, 0, sizeof *info);
    memcpy(info->name, t->name, sizeof info->name - 1);
    info->in_use = users || (s->container && s->container != NPU_FREE);
    info->vfid = (unsigned)k + 1;
    info->group = s->group;
    info->container = s->container;
    info->base.group = s->group;
    info->computing = computing_of(&t->size);
    info->computing.utilization = s->busy_until_ns > npu_now_ns() ? 100 : 0;
    info->computing.memory_free = t->size.memory_mib - ((bytes + (1 << 20) - 1) >> 20);
    info->media = media_of(&t->size);
    *size = sizeof *out;
    return DCMI_OK;
}

static int tell_totals(const struct npu_view *view, void *buffer, unsigned *size)
{
    struct totals *out = buffer;
    NEED(*size >= sizeof *out);
    memset(out, 0, sizeof *out);
    for (unsigned k = 0; k < NPU_SLICES; k++)
        if (shows(view, &view->chip->slices[k]))
            out->ids[out->count++] = view->chip->slices[k].id;
    out->group_count = view->chip->groups;
    out->group_bitmap = (1u << view->chip->groups) - 1;
    out->computing = computing_of(npu_size_of(view));
    out->media = media_of(npu_size_of(view));
    *size = sizeof *out;
    return DCMI_OK;
}

static int tell_free(const struct npu_view *view, void *buffer, unsigned *size)
{
    struct available *out = buffer;
    NEED(*size >= sizeof *out);
    memset(out, 0, sizeof *out);
    struct npu_size left = {0};
    if (!view->slice) {
        struct npu_size held = taken(view->chip);
        left = view->chip->size;
        left.cores -= held.cores;
        left.cpus -= left.cpus ? held.cpus : 0;
        left.memory_mib -= held.memory_mib;
        for (unsigned u = 0; u < NPU_UNITS; u++)
            left.media[u] -= left.media[u] ? held.media[u] : 0;
        out->group_bitmap = groups_free(view->chip);
        out->group_count = (unsigned)__builtin_popcount(out->group_bitmap);
    }
    out->computing = computing_of(&left);
    out->media = media_of(&left);
    *size = sizeof *out;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_info(int card, int device, int command, unsigned sub, void *buffer, unsigned *size)
{
    DEVICE(dcmi_get_device_info, card, device);
    NEED(buffer && size);
    if (command == MAIN_SHARE) {
        NEED(*size >= sizeof(unsigned));
        memcpy(buffer, &view.chip->share, sizeof(unsigned));
        return DCMI_OK;
    }
    if (command != MAIN_SLICES)
        return DCMI_NOT_SUPPORTED;
    switch (sub) {
    case SUB_ONE:
        return tell_one(&view, buffer, size);
    case SUB_TOTALS:
        return tell_totals(&view, buffer, size);
    case SUB_FREE:
        return tell_free(&view, buffer, size);
    default:
        return DCMI_NOT_SUPPORTED;
    }
}

EXPORT int dcmi_set_device_info(int card, int device, int command, unsigned sub, const void *buffer, unsigned size)
{
    DEVICE(dcmi_set_device_info, card, device);
    (void)sub;
    if (command != MAIN_SHARE)
        return DCMI_NOT_SUPPORTED;
    if (npu_inside())
        return DCMI_NOT_PERMITTED;
    NEED(buffer && size >= sizeof(unsigned));
    memcpy(&view.chip->share, buffer, sizeof(unsigned));
    return DCMI_OK;
}

/* Not DCMI's: the templates of a chip, which its own tools know by the chip's type. The count, or a code. */
EXPORT int pumice_npu_template(int card, int device, unsigned number, struct npu_template *out)
{
    DEVICE(pumice_npu_template, card, device);
    NEED(out && number < view.chip->template_count);
    *out = view.chip->templates[number];
    return DCMI_OK;
}
