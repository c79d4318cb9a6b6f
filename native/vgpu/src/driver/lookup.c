/* Finding a hook: by name, by the address of what it stands for, by base name and version. */
#include "core/numbers.h"
#include "driver/loader.h"
#include "driver/real.h"

#include <string.h>

enum { BUCKETS = 512 };
_Static_assert(HOOK_COUNT * 2 < BUCKETS, "the table of names is too full to be quick");

static int16_t by_name[BUCKETS]; /* index + 1 */
static int by_name_ready;

/* Threads that come here together store the same values; nobody waits. */
static void build_names(void)
{
    for (int i = 0; i < HOOK_COUNT; i++) {
        unsigned at = hash_of_text(hooks[i].name) % BUCKETS;
        while (__atomic_load_n(&by_name[at], __ATOMIC_RELAXED) != 0 && __atomic_load_n(&by_name[at], __ATOMIC_RELAXED) != i + 1)
            at = (at + 1) % BUCKETS;
        __atomic_store_n(&by_name[at], (int16_t)(i + 1), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&by_name_ready, 1, __ATOMIC_RELEASE);
}

static bool upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

const struct hook *hook_by_name(const char *name)
{
    bool cuda = name[0] == 'c' && name[1] == 'u' && upper(name[2]);
    bool nvml = name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l' && upper(name[4]);
    if (!cuda && !nvml)
        return NULL;
    if (!__atomic_load_n(&by_name_ready, __ATOMIC_ACQUIRE))
        build_names();
    for (unsigned at = hash_of_text(name) % BUCKETS; by_name[at] != 0; at = (at + 1) % BUCKETS)
        if (same_text(hooks[by_name[at] - 1].name, name))
            return &hooks[by_name[at] - 1];
    return NULL;
}

struct family {
    size_t base; /* length of the name without version and stream flavour */
    bool per_thread;
};

static struct family family_of(const char *name)
{
    size_t length = strlen(name);
    struct family family = {length, false};
    if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0)) {
        family.per_thread = true;
        length -= 5;
    }
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' && name[length - 1] >= '2' && name[length - 1] <= '9')
        length -= 3;
    family.base = length;
    return family;
}

/* WithFlags is what the base name of cuGraphInstantiate yields since 12000. */
static bool as_instantiate(const char *hook_name, const char *asked, size_t asked_base)
{
    return asked_base == 18 && strncmp(asked, "cuGraphInstantiate", 18) == 0 && strcmp(hook_name, "cuGraphInstantiateWithFlags") == 0;
}

static bool same_base(const char *hook_name, size_t hook_base, const char *asked, size_t asked_base)
{
    return (hook_base == asked_base && strncmp(hook_name, asked, hook_base) == 0) || as_instantiate(hook_name, asked, asked_base);
}

const struct hook *hook_by_address(void *address, const char *base, bool per_thread)
{
    const struct hook *other_flavour = NULL;
    struct family asked = family_of(base);
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].address != address || address == NULL)
            continue;
        struct family own = family_of(hooks[i].name);
        if (!same_base(hooks[i].name, own.base, base, asked.base))
            continue;
        if (own.per_thread == (per_thread || asked.per_thread))
            return &hooks[i];
        other_flavour = &hooks[i];
    }
    return other_flavour;
}

const struct hook *hook_by_version(const char *base, int version, bool per_thread)
{
    struct family asked = family_of(base);
    if (base[asked.base] != '\0') /* a full name was asked for */
        return hook_by_name(base);
    const struct hook *best = NULL;
    bool best_flavour = false;
    for (int i = 0; i < HOOK_COUNT; i++) {
        struct family own = family_of(hooks[i].name);
        bool flavour = own.per_thread == per_thread;
        int since = as_instantiate(hooks[i].name, base, asked.base) ? 12000 : hooks[i].since;
        if (since > version || !same_base(hooks[i].name, own.base, base, asked.base) || (own.per_thread && !per_thread))
            continue;
        if (best == NULL || (flavour && !best_flavour) || (flavour == best_flavour && hooks[i].since > best->since)) {
            best = &hooks[i];
            best_flavour = flavour;
        }
    }
    return best;
}
