/* Reading a module's image: our text here, PTX and machine code in files of their own. The grammar stands in machine/state.h. */
#define _GNU_SOURCE
#include "image.h"
#include "old_calls.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_KERNEL_NS 5000
#define DEFAULT_CODE_BYTES 4096
#define MOST_PARAMETERS 8192u /* of one byte each they fill what a launch may carry, and more */

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

bool kernel_add_parameter(struct kernel_text *k, unsigned index, uint32_t offset, uint32_t size)
{
    if (index >= MOST_PARAMETERS)
        return false;
    if (index >= k->parameter_count) {
        struct parameter *more = realloc(k->parameters, (index + 1) * sizeof *more);
        if (!more)
            return false;
        memset(more + k->parameter_count, 0, (index + 1 - k->parameter_count) * sizeof *more);
        k->parameters = more;
        k->parameter_count = index + 1;
    }
    k->parameters[index] = (struct parameter){offset, size};
    return true;
}

/* The third is the kernel by which PyTorch has a stream wait (torch.cuda._sleep), whose parameter is in cycles of the card's clock. */
static enum kernel_time time_from_parameter(const char *name)
{
    static const char CYCLES[] = "11spin_kernelEl";
    size_t length = strlen(name);
    bool cycles = length >= sizeof CYCLES - 1 && strcmp(name + length - (sizeof CYCLES - 1), CYCLES) == 0;
    return strcmp(name, "pumice_spin_ns") == 0 ? T_FIRST_NS : strcmp(name, "pumice_block_ns") == 0 ? T_FIRST_NS_OF_BLOCK
           : cycles                            ? T_FIRST_CYCLES : T_OWN;
}

void kernel_describe(struct kernel_text *k)
{
    if (!k->ns && !time_in_name(k->name, &k->ns))
        k->ns = default_ns();
    k->time_of = time_from_parameter(k->name);
    if (!k->regs)
        k->regs = 32;
    if (!k->code)
        k->code = DEFAULT_CODE_BYTES;
}

struct kernel_text *image_add_kernel(struct module *m, const char *name, size_t length)
{
    const char *kept = name_kept(name, length);
    struct kernel_text *more = kept ? realloc(m->kernels, (m->kernel_count + 1) * sizeof *more) : NULL;
    if (!more)
        return NULL;
    m->kernels = more;
    more[m->kernel_count] = (struct kernel_text){.name = kept};
    return &more[m->kernel_count++];
}

struct global_text *image_add_global(struct module *m, const char *name, size_t length, uint64_t bytes)
{
    const char *kept = name_kept(name, length);
    struct global_text *more = kept ? realloc(m->globals, (m->global_count + 1) * sizeof *more) : NULL;
    if (!more)
        return NULL;
    m->globals = more;
    more[m->global_count] = (struct global_text){.name = kept, .bytes = bytes};
    return &more[m->global_count++];
}

size_t name_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || (at[n] && strchr("_$.%", at[n])))
        n++;
    return n;
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
    size_t length = name ? name_length(name) : 0;
    if (length == 0)
        return false;
    if (strncmp(line, "pumice-kernel ", 14) == 0) {
        struct kernel_text *k = image_add_kernel(m, name, length);
        if (!k)
            return false;
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
        uint64_t bytes = number(line, end, "bytes");
        return bytes > 0 && bytes < 1ull << 40 && image_add_global(m, name, length, bytes);
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

/* ---- which it is ---- */

CUresult image_read(struct module *m, const void *image)
{
    unsigned char head[16];
    if (!image || copy_bytes(head, image, sizeof head) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_machine_code(head)) {
        m->opaque = !machine_code_read(m, image);
        return CUDA_SUCCESS;
    }
    const char *text = image;
    text += strspn(text, " \t\r\n");
    if (strncmp(text, "pumice-", 7) == 0)
        return read_text(m, text);
    for (int i = 0; i < 4; i++)
        if (!text[i] || (unsigned char)text[i] >= 0x80)
            return CUDA_ERROR_INVALID_IMAGE;
    return ptx_read(m, text, strlen(text));
}

void image_forget(struct module *m)
{
    for (size_t i = 0; i < m->kernel_count; i++)
        free(m->kernels[i].parameters);
    for (size_t i = 0; i < m->global_count; i++)
        free(m->globals[i].initial);
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
    struct kernel_text *k = m->opaque && *name ? image_add_kernel(m, name, strlen(name)) : NULL;
    if (k)
        kernel_describe(k);
    return k;
}

CUresult image_from_file(const char *path, char **out, size_t *size)
{
    struct stat st;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    char *text = status_of_file(fd, &st) == 0 && st.st_size < 1 << 28 ? malloc((size_t)st.st_size + 17) : NULL;
    ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    close(fd);
    if (n < 0) {
        free(text);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memset(text + n, 0, 17);
    *out = text;
    if (size)
        *size = (size_t)n;
    return CUDA_SUCCESS;
}
