/* Machine code: a cubin by itself, or a fat binary, in which cubins and PTX for several architectures lie one behind the other. A wrapper
 * points to one, or to a list of them. A compressed part is taken on trust: whoever asks for a kernel by name gets it. */
#define _GNU_SOURCE
#include "image.h"

#include <stdlib.h>
#include <string.h>

#define WRAPPER 0x466243b1u
#define FAT 0xba55ed50u
#define COMPRESSED 0xa000u /* LZ4, Zstandard */
#define MOST (1ull << 28)
enum { PTX = 1, CUBIN = 2, PARTS = 256, LISTED = 1 << 16 };

struct wrapper { uint32_t magic, version; uint64_t data, list; };
struct fat_head { uint32_t magic; uint16_t version, head_bytes; uint64_t bytes; };
struct fat_part { uint16_t kind, unnamed; uint32_t head_bytes; uint64_t bytes; uint32_t packed_bytes, more; uint16_t minor, major; uint32_t arch;
                  uint32_t name_at, name_bytes; uint64_t flags; };

bool is_machine_code(const unsigned char head[16])
{
    uint32_t magic;
    memcpy(&magic, head, sizeof magic);
    return memcmp(head, "\177ELF", 4) == 0 || magic == FAT || magic == WRAPPER;
}

/* A cubin runs on cards of its own generation that are as new or newer; where there is none the newest PTX is translated. */
static int fitness(const struct fat_part *part, int capability)
{
    int arch = (int)part->arch;
    if (arch > capability || (part->kind != PTX && part->kind != CUBIN))
        return 0;
    return part->kind == PTX ? arch : arch / 10 == capability / 10 ? 1000 + arch : 0;
}

static bool part_read(struct module *m, const char *at, const struct fat_part *part)
{
    if (part->flags & COMPRESSED || part->bytes >= MOST)
        return false;
    if (part->kind == CUBIN)
        return cubin_read(m, at);
    char *text = calloc(1, part->bytes + 1);
    bool read = text && copy_bytes(text, at, part->bytes) == CUDA_SUCCESS && ptx_read(m, text, part->bytes) == CUDA_SUCCESS;
    free(text);
    return read;
}

/* A library belongs to no card: it is read as for the process's first. */
static int capability_of(const struct module *m)
{
    const struct context *c = m->context ? context_of(m->context) : NULL;
    const struct machine_card *card = card_at(c ? c->card : cu.devices[0].card);
    return (int)(card->cc_major * 10 + card->cc_minor);
}

static bool fat_read(struct module *m, const char *image)
{
    struct fat_head head;
    struct fat_part part, best_part;
    const char *best_at = NULL;
    int best = 0, capability = capability_of(m);
    if (copy_bytes(&head, image, sizeof head) != CUDA_SUCCESS || head.magic != FAT)
        return false;
    const char *at = image + head.head_bytes;
    uint64_t left = head.bytes;
    for (int i = 0; i < PARTS && left >= sizeof part && copy_bytes(&part, at, sizeof part) == CUDA_SUCCESS; i++) {
        if (part.head_bytes < sizeof part || part.head_bytes > left || part.bytes > left - part.head_bytes)
            break;
        if (fitness(&part, capability) > best) {
            best = fitness(&part, capability);
            best_part = part;
            best_at = at + part.head_bytes;
        }
        at += part.head_bytes + part.bytes;
        left -= part.head_bytes + part.bytes;
    }
    return best_at && part_read(m, best_at, &best_part);
}

static bool wrapper_read(struct module *m, const void *image)
{
    struct wrapper w;
    if (copy_bytes(&w, image, sizeof w) != CUDA_SUCCESS)
        return false;
    if (w.version != 2)
        return fat_read(m, (const char *)(uintptr_t)w.data);
    bool all = true;
    uint64_t one = 1;
    for (uint64_t i = 0; i < LISTED && one; i++) {
        if (copy_bytes(&one, (const void *)(uintptr_t)(w.list + i * sizeof one), sizeof one) != CUDA_SUCCESS)
            return false;
        all = (!one || fat_read(m, (const char *)(uintptr_t)one)) && all;
    }
    return all;
}

bool machine_code_read(struct module *m, const void *image)
{
    uint32_t magic;
    if (copy_bytes(&magic, image, sizeof magic) != CUDA_SUCCESS)
        return false;
    return magic == FAT ? fat_read(m, image) : magic == WRAPPER ? wrapper_read(m, image) : cubin_read(m, image);
}
