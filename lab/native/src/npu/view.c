/* The devices that a process sees: the emulated machine has no device files, so the variable that the runtime leaves in a container
 * (MindCluster ascend-docker-runtime) is what decides. */
#define _GNU_SOURCE
#include "npu_core.h"

#include <stdlib.h>
#include <string.h>

bool npu_inside(void)
{
    return getenv("ASCEND_VISIBLE_DEVICES") != NULL;
}

const struct npu_size *npu_size_of(const struct npu_view *view)
{
    return view->slice ? &view->chip->templates[view->slice->template].size : &view->chip->size;
}

static unsigned add_chip(struct npu_state *s, unsigned long physical, struct npu_view *out)
{
    for (unsigned c = 0; c < s->chip_count; c++)
        if (s->chips[c].physical == physical && !s->chips[c].gone) {
            *out = (struct npu_view){&s->chips[c], NULL};
            return 1;
        }
    return 0;
}

static unsigned add_slice(struct npu_state *s, unsigned long id, struct npu_view *out)
{
    for (unsigned c = 0; c < s->chip_count; c++)
        for (unsigned i = 0; i < NPU_SLICES; i++) {
            struct npu_slice *slice = &s->chips[c].slices[i];
            if (slice->used && slice->id == id && !s->chips[c].gone) {
                *out = (struct npu_view){&s->chips[c], slice};
                return 1;
            }
        }
    return 0;
}

unsigned npu_views(struct npu_view out[NPU_VIEWS])
{
    struct npu_state *s = npu_attach();
    const char *given = getenv("ASCEND_VISIBLE_DEVICES");
    unsigned count = 0;
    if (!given) {
        for (unsigned c = 0; c < s->chip_count; c++)
            count += add_chip(s, s->chips[c].physical, &out[count]);
        return count;
    }
    const char *options = getenv("ASCEND_RUNTIME_OPTIONS");
    bool virtual = options && strstr(options, "VIRTUAL");
    while (*given && count < NPU_VIEWS) {
        char *end;
        unsigned long first = strtoul(given, &end, 10), last = first;
        if (end == given) {
            given++; /* a comma, or nothing that is a number */
            continue;
        }
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long id = first; id <= last && id < first + NPU_VIEWS && count < NPU_VIEWS; id++)
            count += virtual ? add_slice(s, id, &out[count]) : add_chip(s, id, &out[count]);
        given = end;
    }
    return count;
}
