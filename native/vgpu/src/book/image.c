#include "book/image.h"

#include "core/quiet.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MACHINE_CUDA 190 /* EM_CUDA */
#define WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC 0xba55ed50u
#define FAT_COMPRESSED 0x2000u
#define PAGE 4096u
enum { FAT_PTX = 1, FAT_CUBIN = 2, FAT_ENTRIES = 256, SECTIONS = 65536, NAME_BYTES = 16 };
#define TEXT_MOST (256ull << 20)

/* ---- where it lies ------------------------------------------------------------------------------------------- */

static ssize_t read_once(const struct source *source, uint64_t at, void *into, size_t bytes)
{
    if (source->fd >= 0)
        return pread(source->fd, into, bytes, (off_t)(source->base + at));
    struct iovec here = {into, bytes}, there = {(void *)(uintptr_t)(source->base + at), bytes};
    return syscall(SYS_process_vm_readv, getpid(), &here, 1ul, &there, 1ul, 0ul);
}

bool source_read(const struct source *source, uint64_t at, void *into, size_t bytes)
{
    return read_once(source, at, into, bytes) == (ssize_t)bytes;
}

size_t source_read_some(const struct source *source, uint64_t at, void *into, size_t bytes)
{
    size_t in_page = PAGE - (source->base + at) % PAGE; /* a read that begins in one page and ends in none fails as a whole */
    ssize_t got = read_once(source, at, into, bytes < in_page ? bytes : in_page);
    return got > 0 ? (size_t)got : 0;
}

/* ---- cubins --------------------------------------------------------------------------------------------------- */

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* At most NAME_BYTES of it, which may lie in two pages. */
static void read_name(const struct source *source, uint64_t at, char *name)
{
    size_t length = 0, got;
    do
        length += got = source_read_some(source, at + length, name + length, NAME_BYTES - length);
    while (got > 0 && length < NAME_BYTES);
    name[length] = '\0';
}

static void count_section(struct image_need *need, const Elf64_Shdr *section, const char *name)
{
    if (strcmp(name, ".nv.global") == 0 || strcmp(name, ".nv.global.init") == 0)
        need->variables += section->sh_size;
    else if (starts_with(name, ".text.") || starts_with(name, ".nv.constant"))
        need->code += section->sh_size;
}

/* Sizes that no card has are a damaged image: the driver will say so. */
static bool absurd(const struct image_need *need)
{
    return need->variables > 1ull << 50 || need->code > 1ull << 50;
}

static struct image_need need_of_cubin(const struct source *source, uint64_t at)
{
    const struct image_need nothing = IMAGE_SILENT;
    struct image_need need = {.known = true};
    Elf64_Ehdr head;
    Elf64_Shdr section, names;
    if (!source_read(source, at, &head, sizeof head) || head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE_CUDA ||
        head.e_shentsize != sizeof section || head.e_shstrndx >= head.e_shnum ||
        !source_read(source, at + head.e_shoff + head.e_shstrndx * sizeof names, &names, sizeof names))
        return nothing;
    for (unsigned i = 0; i < head.e_shnum && !absurd(&need); i++) {
        char name[NAME_BYTES + 1];
        if (!source_read(source, at + head.e_shoff + i * sizeof section, &section, sizeof section))
            return nothing;
        read_name(source, at + names.sh_offset + section.sh_name, name);
        count_section(&need, &section, name);
    }
    return absurd(&need) ? nothing : need;
}

/* ---- fat binaries --------------------------------------------------------------------------------------------- */

struct fat_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes; /* of all entries */
};

struct fat_entry { /* as tools of the ecosystem know it; what is not read here has no name */
    uint16_t kind, unnamed;
    uint32_t head_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, more;
    uint16_t minor, major;
    uint32_t arch; /* 10 * major + minor */
    uint32_t name_at, name_bytes;
    uint64_t flags;
};

static struct image_need need_of_entry(const struct source *source, uint64_t at, const struct fat_entry *entry)
{
    if (entry->flags & FAT_COMPRESSED)
        return IMAGE_SILENT;
    return entry->kind == FAT_PTX ? image_of_ptx(source, at, entry->bytes) : need_of_cubin(source, at);
}

/* A cubin runs on cards of its own generation that are as new or newer; where there is none the newest PTX is translated. */
static int fitness(const struct fat_entry *entry, int capability)
{
    int arch = (int)entry->arch;
    if (arch > capability || (entry->kind != FAT_PTX && entry->kind != FAT_CUBIN))
        return 0;
    return entry->kind == FAT_PTX ? arch : arch / 10 == capability / 10 ? 1000 + arch : 0;
}

static struct image_need need_of_fat_binary(const struct source *source, uint64_t at, int capability)
{
    struct image_need need = IMAGE_SILENT;
    struct fat_head head;
    struct fat_entry entry;
    if (!source_read(source, at, &head, sizeof head) || head.magic != FAT_MAGIC)
        return need;
    uint64_t place = at + head.head_bytes, end = place + head.bytes;
    int best = 0;
    for (int i = 0; i < FAT_ENTRIES && place < end && source_read(source, place, &entry, sizeof entry); i++) {
        if (entry.head_bytes < sizeof entry || entry.bytes > end - place)
            break;
        if (fitness(&entry, capability) > best) {
            best = fitness(&entry, capability);
            need = need_of_entry(source, place + entry.head_bytes, &entry);
        }
        place += entry.head_bytes + entry.bytes;
    }
    return need;
}

/* ---- which it is ----------------------------------------------------------------------------------------------- */

static struct image_need need_at(const struct source *source, int capability)
{
    unsigned char head[16];
    uint32_t magic;
    uint64_t fat;
    if (!source_read(source, 0, head, sizeof head))
        return IMAGE_SILENT;
    memcpy(&magic, head, sizeof magic);
    memcpy(&fat, head + 8, sizeof fat);
    if (memcmp(head, ELFMAG, SELFMAG) == 0)
        return need_of_cubin(source, 0);
    if (magic == FAT_MAGIC)
        return need_of_fat_binary(source, 0, capability);
    if (magic != WRAPPER_MAGIC)
        return image_of_ptx(source, 0, TEXT_MOST);
    /* A wrapper is a pointer, and so only found in memory. */
    struct source wrapped = {source->fd, fat};
    return source->base != 0 ? need_of_fat_binary(&wrapped, 0, capability) : IMAGE_SILENT;
}

struct image_need image_need_in_memory(const void *image, int capability)
{
    KEEP_ERRNO;
    struct source source = {-1, (uint64_t)(uintptr_t)image};
    char byte;
    if (image != NULL && !source_read(&source, 0, &byte, 1)) /* some sandboxes refuse the call */
        source.fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    struct image_need need = image == NULL ? IMAGE_SILENT : need_at(&source, capability);
    if (source.fd >= 0)
        close(source.fd);
    return need;
}

struct image_need image_need_in_file(const char *path, int capability)
{
    KEEP_ERRNO;
    struct source source = {path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1, 0};
    struct image_need need = IMAGE_SILENT;
    if (source.fd >= 0) {
        need = need_at(&source, capability);
        close(source.fd);
    }
    return need;
}
