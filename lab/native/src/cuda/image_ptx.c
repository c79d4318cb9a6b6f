/* Reading PTX: entries with their parameters, and variables. */
#include "image.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one element of ".b8", ".u64", ".bf16". */
static uint64_t width(const char *type)
{
    const char *digits = type + strcspn(type, "0123456789 \t\n;");
    uint64_t bits = strtoull(digits, NULL, 10);
    return bits ? (bits + 7) / 8 : 1;
}

struct declaration { const char *name; size_t length; uint64_t bytes, align; bool managed; const char *end; };

/* What follows a state space: ".align 8 .b8 name[16]", ".attribute(.managed) .u32 name", ".u64 .ptr .align 1 name". */
static struct declaration declaration(const char *at)
{
    struct declaration d = {.align = 0};
    const char *type = NULL;
    uint64_t lanes = 1;
    bool pointer = false;
    while (isspace((unsigned char)*at) || *at == '.') {
        if (*at != '.') {
            at++;
            continue;
        }
        const char *word = at;
        at += strcspn(at, " \t\n;,(");
        if (*at == '(')
            at += strcspn(at, ")") + (strchr(at, ')') != NULL);
        if (strncmp(word, ".align", 6) == 0) {
            char *end;
            uint64_t align = strtoull(at, &end, 10);
            at = end;
            d.align = pointer ? d.align : align;
        } else if (strncmp(word, ".ptr", 4) == 0) {
            pointer = true; /* the alignment that follows is of what it points to */
        } else if (strncmp(word, ".attribute", 10) == 0) {
            const char *managed = strstr(word, ".managed");
            d.managed = managed && managed < at;
        } else if (word[1] == 'v' && isdigit((unsigned char)word[2])) {
            lanes = (uint64_t)(word[2] - '0');
        } else if (isdigit((unsigned char)at[-1])) {
            type = word;
        }
    }
    d.name = at;
    d.length = name_length(at);
    at += d.length;
    uint64_t each = (type ? width(type) : 1) * lanes, count = 1;
    for (; *at == '['; at += strcspn(at, "]") + (strchr(at, ']') != NULL))
        count *= strtoull(at + 1, NULL, 0) ? strtoull(at + 1, NULL, 0) : 1;
    d.bytes = each * count;
    d.align = d.align ? d.align : each;
    d.end = at;
    return d;
}

/* "( .param .u64 a, .param .f32 b )" */
static const char *read_parameters(struct kernel_text *k, const char *at)
{
    at += strspn(at, " \t\r\n");
    if (*at != '(')
        return at;
    uint64_t offset = 0;
    for (unsigned index = 0; *at && *at != ')'; at += strcspn(at, ".)")) {
        if (strncmp(at, ".param", 6) != 0) {
            at++;
            continue;
        }
        struct declaration d = declaration(at + 6);
        if (d.align == 0 || d.align > 4096 || (d.align & (d.align - 1)) || d.bytes > UINT16_MAX || offset > UINT16_MAX)
            return at;
        offset = (offset + d.align - 1) & ~(d.align - 1);
        if (!kernel_add_parameter(k, index++, (uint32_t)offset, (uint32_t)d.bytes))
            return at;
        offset += d.bytes;
        at = d.end;
    }
    return at;
}

static bool word_at(const char *at, const char *word)
{
    size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && isspace((unsigned char)at[n]);
}

CUresult ptx_read(struct module *m, const char *text, size_t length)
{
    if (!strstr(text, ".version") || !strstr(text, ".target"))
        return CUDA_ERROR_INVALID_PTX;
    int depth = 0;
    for (const char *at = text, *end = text + length; at < end && *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at != '.')
            continue;
        if (word_at(at, ".entry")) {
            at += 6 + strspn(at + 6, " \t\n");
            size_t named = name_length(at);
            struct kernel_text *k = named ? image_add_kernel(m, at, named) : NULL;
            if (!k)
                return named ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
            at = read_parameters(k, at + named) - 1;
            kernel_describe(k);
        } else if (depth == 0 && (word_at(at, ".global") || word_at(at, ".const"))) {
            struct declaration d = declaration(at + strcspn(at, " \t\n"));
            struct global_text *g = d.length ? image_add_global(m, d.name, d.length, d.bytes) : NULL;
            if (d.length && !g)
                return CUDA_ERROR_OUT_OF_MEMORY;
            if (g)
                g->managed = d.managed;
        }
    }
    return depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}
