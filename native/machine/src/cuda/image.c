/* Reading a module's image: our text, PTX, or machine code that is taken on trust. The grammar stands in machine/state.h. */
#define _GNU_SOURCE
#include "image.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_KERNEL_NS 5000
#define DEFAULT_CODE_BYTES 4096

static uint64_t default_ns(void)
{
    return the_machine->kernel_ns ? the_machine->kernel_ns : DEFAULT_KERNEL_NS;
}

/* "gemm_250us" lasts that long. */
static bool time_in_name(const char *name, uint64_t *ns)
{
    const char *at = strrchr(name, '_');
    char *end;
    if (!at || !isdigit((unsigned char)at[1]))
        return false;
    uint64_t n = strtoull(at + 1, &end, 10);
    uint64_t unit = strcmp(end, "ns") == 0 ? 1 : strcmp(end, "us") == 0 ? 1000 : strcmp(end, "ms") == 0 ? 1000000 : 0;
    *ns = n * unit;
    return unit != 0;
}

void kernel_describe(struct kernel_text *k)
{
    if (!k->ns && !time_in_name(k->name, &k->ns))
        k->ns = default_ns();
    k->special = strcmp(k->name, "pumice_spin_ns") == 0 ? 1 : strcmp(k->name, "pumice_block_ns") == 0 ? 2 : 0;
    if (!k->regs)
        k->regs = 32;
    if (!k->code)
        k->code = DEFAULT_CODE_BYTES;
}

static struct kernel_text *add_kernel(struct module *m)
{
    struct kernel_text *more = realloc(m->kernels, (m->kernel_count + 1) * sizeof *more);
    if (!more)
        return NULL;
    m->kernels = more;
    memset(&more[m->kernel_count], 0, sizeof *more);
    return &more[m->kernel_count++];
}

static struct global_text *add_global(struct module *m)
{
    struct global_text *more = realloc(m->globals, (m->global_count + 1) * sizeof *more);
    if (!more)
        return NULL;
    m->globals = more;
    memset(&more[m->global_count], 0, sizeof *more);
    return &more[m->global_count++];
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

static const char *copy_name(const char *from, char *to, size_t size)
{
    size_t n = 0;
    for (; name_char(*from); from++)
        if (n + 1 < size)
            to[n++] = *from;
    to[n] = 0;
    return from;
}

/* ---- our text ---- */

static const char *field(const char *line, const char *end, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = line; at + n < end; at++)
        if ((at == line || at[-1] == ' ') && strncmp(at, key, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

static uint64_t number(const char *line, const char *end, const char *key)
{
    const char *at = field(line, end, key);
    return at ? strtoull(at, NULL, 0) : 0;
}

static bool read_line(struct module *m, const char *line, const char *end)
{
    const char *name = field(line, end, "name");
    if (!name || !name_char(*name))
        return false;
    if (strncmp(line, "pumice-kernel ", 14) == 0) {
        struct kernel_text *k = add_kernel(m);
        if (!k)
            return false;
        copy_name(name, k->name, sizeof k->name);
        const char *ns = field(line, end, "ns");
        k->ns = ns ? strtoull(ns, NULL, 0) : 0;
        bool free_of_charge = ns && k->ns == 0;
        k->regs = (int)number(line, end, "regs");
        k->smem = (int)number(line, end, "smem");
        k->code = number(line, end, "code");
        kernel_describe(k);
        if (free_of_charge)
            k->ns = 0;
        return true;
    }
    if (strncmp(line, "pumice-global ", 14) == 0) {
        struct global_text *g = add_global(m);
        if (!g)
            return false;
        copy_name(name, g->name, sizeof g->name);
        g->bytes = number(line, end, "bytes");
        return g->bytes > 0 && g->bytes < 1ull << 40;
    }
    return false;
}

static CUresult read_text(struct module *m, const char *text)
{
    while (*text) {
        const char *end = text + strcspn(text, "\n");
        const char *line = text;
        while (line < end && isspace((unsigned char)*line))
            line++;
        if (line < end && *line != '#' && !read_line(m, line, end))
            return CUDA_ERROR_INVALID_IMAGE;
        text = *end ? end + 1 : end;
    }
    return m->kernel_count + m->global_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* ---- PTX ---- */

static uint64_t ptx_width(const char *type)
{
    const char *digits = type + strcspn(type, "0123456789");
    uint64_t bits = strtoull(digits, NULL, 10);
    return bits ? (bits + 7) / 8 : 1;
}

/* ".global .align 8 .b8 name[16] = …;" */
static void read_ptx_global(struct module *m, const char *at)
{
    const char *type = at, *word = at;
    char name[120];
    while (*word == ' ' || *word == '\t' || *word == '.') {
        if (*word == '.') {
            bool align = strncmp(word, ".align", 6) == 0;
            if (!align)
                type = word;
            word += strcspn(word, " \t\n;");
            if (align) {
                word += strspn(word, " \t");
                word += strspn(word, "0123456789");
            }
        } else {
            word++;
        }
    }
    const char *end = copy_name(word, name, sizeof name);
    if (!name[0])
        return;
    uint64_t count = *end == '[' ? strtoull(end + 1, NULL, 0) : 1;
    struct global_text *g = add_global(m);
    if (!g)
        return;
    memcpy(g->name, name, sizeof name);
    g->bytes = ptx_width(type) * (count ? count : 1);
}

static CUresult read_ptx(struct module *m, const char *text)
{
    if (!strstr(text, ".version") || !strstr(text, ".target"))
        return CUDA_ERROR_INVALID_PTX;
    int depth = 0;
    for (const char *at = text; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at != '.')
            continue;
        if (strncmp(at, ".entry", 6) == 0 && isspace((unsigned char)at[6])) {
            struct kernel_text *k = add_kernel(m);
            if (!k)
                return CUDA_ERROR_OUT_OF_MEMORY;
            at += 6 + strspn(at + 6, " \t\n");
            at = copy_name(at, k->name, sizeof k->name) - 1;
            if (!k->name[0])
                return CUDA_ERROR_INVALID_PTX;
            kernel_describe(k);
        } else if (depth == 0 && strncmp(at, ".global", 7) == 0 && isspace((unsigned char)at[7])) {
            read_ptx_global(m, at + 7);
        }
    }
    return depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

/* ---- which it is ---- */

static bool machine_code(const unsigned char *head)
{
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'}, fat[4] = {0x50, 0xed, 0x55, 0xba}, wrapper[4] = {0xb1, 0x43, 0x62, 0x46};
    return memcmp(head, elf, 4) == 0 || memcmp(head, fat, 4) == 0 || memcmp(head, wrapper, 4) == 0;
}

CUresult image_read(struct module *m, const void *image)
{
    unsigned char head[16];
    if (!image || copy_bytes(head, image, sizeof head) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (machine_code(head)) {
        m->opaque = true;
        return CUDA_SUCCESS;
    }
    const char *text = image;
    text += strspn(text, " \t\r\n");
    if (strncmp(text, "pumice-", 7) == 0)
        return read_text(m, text);
    for (int i = 0; i < 4; i++)
        if (!text[i] || (unsigned char)text[i] >= 0x80)
            return CUDA_ERROR_INVALID_IMAGE;
    return read_ptx(m, text);
}

void image_forget(struct module *m)
{
    free(m->kernels);
    free(m->globals);
    m->kernels = NULL;
    m->globals = NULL;
    m->kernel_count = m->global_count = 0;
}

struct kernel_text *image_kernel(struct module *m, const char *name)
{
    for (size_t i = 0; i < m->kernel_count; i++)
        if (strcmp(m->kernels[i].name, name) == 0)
            return &m->kernels[i];
    struct kernel_text *k = m->opaque && *name && strlen(name) < sizeof k->name ? add_kernel(m) : NULL;
    if (k) {
        strcpy(k->name, name);
        kernel_describe(k);
    }
    return k;
}

CUresult image_from_file(const char *path, char **out)
{
    struct stat st;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    char *text = fstat(fd, &st) == 0 && st.st_size < 1 << 28 ? malloc((size_t)st.st_size + 17) : NULL;
    ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    close(fd);
    if (n < 0) {
        free(text);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memset(text + n, 0, 17);
    *out = text;
    return CUDA_SUCCESS;
}
