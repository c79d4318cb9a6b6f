/* Reading images: PTX, cubins and fat binaries made here, whole and damaged, in memory and in files. */
#include "check.h"
#include "book/image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PTX ".version 8.0\n.target sm_80\n.address_size 64\n"

static void each_variable_of_ptx_is_counted(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {".global .b8 g[104857600];", 104857600},
        {".visible .global .align 16 .b8 g[100];", 100},
        {".weak .global .attribute(.managed) .u64 g;", 8},
        {".global .f32 g[4][5][6];", 480},
        {".global .v4 .f32 g[10];", 160},
        {".global .u32 a, b[4], c;", 24},
        {".global .s32 a = 5, b[3] = {1, 2, 3}, c;", 20},
        {".global .align 4 .f16x2 g[0x10];", 64},
        {".global .u8 g[4] = {1, 2, 3, 4};\n.global .u64 h;", 12},
        {"// .global .b8 g[100];\n/* .global .b8 h[100]; */ .global .b8 i[7];", 7},
        {".extern .global .b8 g[100];", 0},
        {".extern .shared .align 16 .b8 s[];", 0},
        {".const .b8 c[100];", 0},
        {".visible .entry k(.param .u64 p)\n{\n .reg .b32 %r<3>;\n .shared .b8 s[64];\n .global .u32 inner;\n ret;\n}\n.global .b8 g[9];", 9},
        {".func (.reg .u32 r) f (.reg .u32 x) { { mov.u32 r, x; } ret; }", 0},
        {".global .b8 g[18446744073709551615];", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        snprintf(text, sizeof text, PTX "%s\n", rows[i].text);
        struct image_need need = image_need_in_memory(text, 80);
        if (need.variables != rows[i].bytes || !need.known)
            fprintf(stderr, "%s\n", rows[i].text);
        CHECK(need.known);
        CHECK_EQUAL(need.variables, rows[i].bytes);
    }
}

/* A cubin of one section for each name: its size is given, its contents nobody reads. */
static size_t cubin(unsigned char *to, const char *const *names, const uint64_t *sizes, unsigned count)
{
    Elf64_Ehdr head = {.e_machine = 190, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = (Elf64_Half)(count + 1)};
    size_t text = sizeof head, at = text;
    Elf64_Shdr sections[16] = {{0}};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    for (unsigned i = 0; i < count; i++) {
        sections[i].sh_name = (Elf64_Word)(at - text);
        sections[i].sh_size = sizes[i];
        memcpy(to + at, names[i], strlen(names[i]) + 1);
        at += strlen(names[i]) + 1;
    }
    sections[count] = (Elf64_Shdr){.sh_name = (Elf64_Word)(at - text - 1), .sh_offset = text, .sh_size = at - text};
    head.e_shstrndx = (Elf64_Half)count;
    head.e_shoff = at;
    memcpy(to, &head, sizeof head);
    memcpy(to + at, sections, (count + 1) * sizeof *sections);
    return at + (count + 1) * sizeof *sections;
}

static const char *const NAMES[] = {".nv.global", ".nv.global.init", ".text._Z4gemmPf", ".nv.constant0._Z4gemmPf", ".nv.shared._Z4gemmPf", ".debug_line"};
static const uint64_t SIZES[] = {1 << 20, 4096, 70000, 500, 48 << 10, 1 << 30};

static void the_sections_of_a_cubin_are_counted_by_their_names(void)
{
    unsigned char image[4096];
    cubin(image, NAMES, SIZES, 6);
    struct image_need need = image_need_in_memory(image, 80);
    CHECK(need.known);
    CHECK_EQUAL(need.variables, (1 << 20) + 4096);
    CHECK_EQUAL(need.code, 70500);
}

struct entry {
    uint16_t kind, unnamed;
    uint32_t head_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, more;
    uint16_t minor, major;
    uint32_t arch, name_at, name_bytes;
    uint64_t flags, zero, unpacked;
};

/* Two cubins, of generations 8 and 9, and PTX; each with a variable of its own size. */
static size_t fat_binary(unsigned char *to, uint64_t flags)
{
    static const int archs[] = {80, 90, 70};
    struct {
        uint32_t magic;
        uint16_t version, head_bytes;
        uint64_t bytes;
    } head = {0xba55ed50, 1, 16, 0};
    size_t at = sizeof head;
    for (int i = 0; i < 3; i++) {
        unsigned char image[4096];
        memset(image, 0, sizeof image);
        uint64_t size = (uint64_t)archs[i] << 20;
        size_t bytes = i < 2 ? cubin(image, NAMES, &size, 1) : (size_t)snprintf((char *)image, sizeof image, PTX ".global .b8 g[%lu];", size) + 1;
        bytes = (bytes + 7) & ~7ul;
        struct entry entry = {.kind = i < 2 ? 2 : 1, .head_bytes = sizeof entry, .bytes = bytes, .arch = (uint32_t)archs[i], .flags = flags};
        memcpy(to + at, &entry, sizeof entry);
        memcpy(to + at + sizeof entry, image, bytes);
        at += sizeof entry + bytes;
    }
    head.bytes = at - sizeof head;
    memcpy(to, &head, sizeof head);
    return at;
}

static void of_a_fat_binary_the_image_that_the_card_will_run_is_taken(void)
{
    unsigned char image[16384];
    size_t bytes = fat_binary(image, 0);
    struct {
        uint32_t magic, version;
        const void *data;
        void *name;
    } wrapper = {0x466243b1, 1, image, NULL};
    CHECK_EQUAL(image_need_in_memory(image, 80).variables, 80 << 20);
    CHECK_EQUAL(image_need_in_memory(image, 86).variables, 80 << 20);
    CHECK_EQUAL(image_need_in_memory(image, 90).variables, 90 << 20);
    CHECK_EQUAL(image_need_in_memory(image, 75).variables, 70 << 20); /* translated */
    CHECK(!image_need_in_memory(image, 60).known);
    CHECK_EQUAL(image_need_in_memory(&wrapper, 90).variables, 90 << 20);
    fat_binary(image, 0x2000);
    CHECK(!image_need_in_memory(image, 80).known); /* packed */

    char path[] = "/tmp/vgpu-image-XXXXXX";
    int fd = mkstemp(path);
    fat_binary(image, 0);
    CHECK(write(fd, image, bytes) == (ssize_t)bytes);
    CHECK_EQUAL(image_need_in_file(path, 80).variables, 80 << 20);
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, &wrapper, sizeof wrapper, 0) == (ssize_t)sizeof wrapper);
    CHECK(!image_need_in_file(path, 80).known); /* a pointer in a file means nothing */
    close(fd);
    unlink(path);
    CHECK(!image_need_in_file(path, 80).known);
    CHECK(!image_need_in_file(NULL, 80).known);
}

/* The image ends with its page, and behind it is nothing: whatever it says of itself, the process goes on. */
static void an_image_that_lies_about_its_length_harms_nobody(void)
{
    enum { PAGE = 4096 };
    unsigned char whole[16384], *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + PAGE, PAGE, PROT_NONE);
    size_t bytes = fat_binary(whole, 0);
    unsigned seed = 3;
    for (int round = 0; round < 3000; round++) {
        size_t keep = 1 + (size_t)rand_r(&seed) % (bytes < PAGE ? bytes : PAGE);
        unsigned char *at = pages + PAGE - keep;
        memcpy(at, whole, keep);
        for (int flips = rand_r(&seed) % 4; flips > 0; flips--)
            at[(size_t)rand_r(&seed) % keep] = (unsigned char)rand_r(&seed);
        image_need_in_memory(at, 80);
    }
    memset(pages, 'x', PAGE);
    CHECK(!image_need_in_memory(pages, 80).known); /* text without an end */
    CHECK(!image_need_in_memory(pages + PAGE, 80).known);
    CHECK(!image_need_in_memory((void *)8, 80).known);
    CHECK(!image_need_in_memory(NULL, 80).known);
    munmap(pages, 2 * PAGE);
}

int main(void)
{
    each_variable_of_ptx_is_counted();
    the_sections_of_a_cubin_are_counted_by_their_names();
    of_a_fat_binary_the_image_that_the_card_will_run_is_taken();
    an_image_that_lies_about_its_length_harms_nobody();
    return check_result("image");
}
