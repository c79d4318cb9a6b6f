/* Looking symbols up by base name, version and kind of default stream.
 *
 * The answer is the newest variant not newer than the version asked for. What is newer than the machine's driver does not exist for
 * cuGetProcAddress; for dlsym the library built for that driver generation leaves it out (rules.mk). */
#include "cuda.h"

#include <ctype.h>
#include <string.h>

#define SYMBOL(base, version, thread, name) void name(void);
#define UNSERVED SYMBOL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
#include "symbols.def"
#pragma GCC diagnostic pop
#undef SYMBOL

static const struct symbol { const char *base, *name; int version, thread; void (*address)(void); } symbols[] = {
#define SYMBOL(base, version, thread, name) {#base, #name, version, thread, name},
#include "symbols.def"
#undef SYMBOL
#undef UNSERVED
};

enum { FOUND = 0, NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };
enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };

/* A caller may name a variant exactly ("cuMemAlloc_v2"). */
static bool matches(const struct symbol *s, const char *wanted)
{
    if (strcmp(s->base, wanted) == 0)
        return true;
    size_t n = strlen(wanted);
    if (strncmp(s->name, wanted, n) != 0)
        return false;
    return s->name[n] == 0 || (s->thread && (strcmp(s->name + n, "_ptsz") == 0 || strcmp(s->name + n, "_ptds") == 0));
}

static const struct symbol *best(const char *wanted, int version, bool per_thread, bool *exists)
{
    const struct symbol *found = NULL;
    int driver = (int)the_machine->cuda_version;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const struct symbol *s = &symbols[i];
        if (!matches(s, wanted) || s->version > driver)
            continue;
        *exists = true;
        if (s->version > version || (s->thread && !per_thread))
            continue;
        if (!found || s->thread > found->thread || (s->thread == found->thread && s->version >= found->version))
            found = s;
    }
    return found;
}

CUresult symbol_look_up(const char *name, void **out, int version, uint64_t flags, int *status)
{
    if (!name || !out || flags > 3 || flags == (FLAG_LEGACY | FLAG_PER_THREAD))
        return CUDA_ERROR_INVALID_VALUE;
    if (!machine_attach()) {
        *out = NULL;
        return CUDA_ERROR_NOT_FOUND;
    }
    bool exists = false;
    const struct symbol *s = best(name, version, flags & FLAG_PER_THREAD, &exists);
    if (status)
        *status = s ? FOUND : exists ? VERSION_NOT_SUFFICIENT : NOT_FOUND;
    *out = s ? (void *)s->address : NULL;
    return s || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
