/* Reading a cubin: an ELF file for NVIDIA's machine. Kernels are the functions that bear the mark of an entry, variables the objects of
 * the sections of global and constant memory; registers and parameters stand in notes (.nv.info) as a list of attributes. What is read
 * here was seen in cubins that NVRTC 13.5 made for sm_75 to sm_120. */
#define _GNU_SOURCE
#include "image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_CUDA 190   /* EM_CUDA */
#define ENTRY 0x10         /* in st_other, as the next */
#define MANAGED 0x04
#define CONSTANTS ".nv.constant3"
#define MOST (1ull << 28)
enum { FORM_VALUE = 4, FRAME = 0x11, PARAMETER = 0x17, REGISTERS = 0x2f };

struct part { char *bytes; uint64_t size; };
struct cubin {
    const char *image;
    Elf64_Shdr *sections;
    unsigned count;
    struct part section_names, names, symbols;
};

static bool fetch(struct part *into, const char *from, uint64_t size)
{
    into->bytes = size < MOST ? malloc(size + 1) : NULL;
    into->size = size;
    if (!into->bytes || copy_bytes(into->bytes, from, size) != CUDA_SUCCESS)
        return false;
    into->bytes[size] = 0;
    return true;
}

static bool fetch_section(const struct cubin *c, struct part *into, unsigned index)
{
    return index < c->count && c->sections[index].sh_type != SHT_NOBITS &&
           fetch(into, c->image + c->sections[index].sh_offset, c->sections[index].sh_size);
}

static const char *text_at(const struct part *names, uint64_t at)
{
    return at < names->size ? names->bytes + at : "";
}

static const char *section_name(const struct cubin *c, unsigned index)
{
    return index < c->count ? text_at(&c->section_names, c->sections[index].sh_name) : "";
}

static bool open_cubin(struct cubin *c)
{
    Elf64_Ehdr head;
    struct part sections = {0};
    if (copy_bytes(&head, c->image, sizeof head) != CUDA_SUCCESS || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE_CUDA || head.e_shentsize != sizeof(Elf64_Shdr) ||
        !fetch(&sections, c->image + head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr))) {
        free(sections.bytes);
        return false;
    }
    c->sections = (Elf64_Shdr *)(void *)sections.bytes;
    c->count = head.e_shnum;
    if (!fetch_section(c, &c->section_names, head.e_shstrndx))
        return false;
    for (unsigned i = 0; i < c->count; i++)
        if (c->sections[i].sh_type == SHT_SYMTAB)
            return fetch_section(c, &c->symbols, i) && fetch_section(c, &c->names, c->sections[i].sh_link);
    return false;
}

static void close_cubin(struct cubin *c)
{
    free(c->sections);
    free(c->section_names.bytes);
    free(c->names.bytes);
    free(c->symbols.bytes);
}

static struct kernel_text *kernel_of_symbol(struct module *m, const struct cubin *c, uint64_t index)
{
    if (index >= c->symbols.size / sizeof(Elf64_Sym))
        return NULL;
    const char *name = text_at(&c->names, ((const Elf64_Sym *)(void *)c->symbols.bytes)[index].st_name);
    for (size_t i = 0; i < m->kernel_count; i++)
        if (strcmp(m->kernels[i].name, name) == 0)
            return &m->kernels[i];
    return NULL;
}

/* ".nv.info" tells of all functions, each attribute with the number of its symbol; ".nv.info.NAME" tells of one. */
static void read_attributes(struct module *m, const struct cubin *c, unsigned index, struct kernel_text *of)
{
    struct part list = {0};
    bool ok = fetch_section(c, &list, index);
    for (uint64_t at = 0; ok && at + 4 <= list.size;) {
        const unsigned char *head = (const unsigned char *)list.bytes + at;
        unsigned size = head[0] == FORM_VALUE ? head[2] | (unsigned)head[3] << 8 : 0;
        uint32_t value[3] = {0};
        if (at + 4 + size > list.size)
            break;
        memcpy(value, head + 4, size < sizeof value ? size : sizeof value);
        if (of && head[0] == FORM_VALUE && head[1] == PARAMETER && size >= 12) /* number of it, its place, its size from bit 18 on */
            ok = kernel_add_parameter(of, value[1] & 0xffff, value[1] >> 16, value[2] >> 18);
        struct kernel_text *named = !of && head[0] == FORM_VALUE && size >= 8 ? kernel_of_symbol(m, c, value[0]) : NULL;
        if (named && head[1] == REGISTERS && value[1] > 0 && value[1] < 256)
            named->regs = (int)value[1];
        else if (named && head[1] == FRAME)
            named->local = (int)(value[1] & 0xffffff);
        at += 4 + size;
    }
    free(list.bytes);
}

static bool is_of_variables(const char *section)
{
    return strcmp(section, ".nv.global") == 0 || strcmp(section, ".nv.global.init") == 0 || strcmp(section, CONSTANTS) == 0;
}

static bool add_variable(struct module *m, const struct cubin *c, const Elf64_Sym *symbol, const char *name)
{
    struct global_text *g = image_add_global(m, name, strlen(name), symbol->st_size);
    const Elf64_Shdr *s = &c->sections[symbol->st_shndx];
    if (g)
        g->managed = symbol->st_other & MANAGED;
    if (!g || s->sh_type == SHT_NOBITS || symbol->st_value > s->sh_size || symbol->st_size > s->sh_size - symbol->st_value)
        return g != NULL;
    struct part initial = {0};
    bool read = fetch(&initial, c->image + s->sh_offset + symbol->st_value, symbol->st_size);
    g->initial = initial.bytes;
    return read;
}

static bool read_symbols(struct module *m, const struct cubin *c)
{
    const Elf64_Sym *symbols = (const Elf64_Sym *)(void *)c->symbols.bytes;
    for (uint64_t i = 0; i < c->symbols.size / sizeof *symbols; i++) {
        const Elf64_Sym *s = &symbols[i];
        const char *name = text_at(&c->names, s->st_name);
        int type = ELF64_ST_TYPE(s->st_info);
        if (s->st_shndx >= c->count || !*name)
            continue;
        if (type == STT_FUNC && s->st_other & ENTRY) {
            struct kernel_text *k = image_add_kernel(m, name, strlen(name));
            if (!k)
                return false;
            k->code = c->sections[s->st_shndx].sh_size;
        } else if (type == STT_OBJECT && s->st_size && s->st_size < 1ull << 40 && is_of_variables(section_name(c, s->st_shndx)) &&
                   !add_variable(m, c, s, name)) {
            return false;
        }
    }
    return m->kernel_count + m->global_count > 0;
}

/* What belongs to one kernel is named after it. */
static void read_sections(struct module *m, const struct cubin *c)
{
    for (size_t k = 0; k < m->kernel_count; k++) {
        for (unsigned i = 0; i < c->count; i++) {
            const char *name = section_name(c, i);
            const char *of = strncmp(name, ".nv.info.", 9) == 0 ? name + 9 : strncmp(name, ".nv.shared.", 11) == 0 ? name + 11 : "";
            if (strcmp(of, m->kernels[k].name) != 0)
                continue;
            if (of == name + 9)
                read_attributes(m, c, i, &m->kernels[k]);
            else
                m->kernels[k].smem = (int)(c->sections[i].sh_size & 0xffffff);
        }
    }
    for (unsigned i = 0; i < c->count; i++) {
        if (strcmp(section_name(c, i), ".nv.info") == 0)
            read_attributes(m, c, i, NULL);
        else if (strcmp(section_name(c, i), CONSTANTS) == 0) /* of the module: each kernel says so much */
            for (size_t k = 0; k < m->kernel_count; k++)
                m->kernels[k].constants = (int)(c->sections[i].sh_size & 0xffffff);
    }
}

bool cubin_read(struct module *m, const void *image)
{
    struct cubin c = {.image = image};
    bool read = open_cubin(&c) && read_symbols(m, &c);
    if (read)
        read_sections(m, &c);
    for (size_t i = 0; read && i < m->kernel_count; i++)
        kernel_describe(&m->kernels[i]);
    close_cubin(&c);
    return read;
}
