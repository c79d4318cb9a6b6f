#include "driver/loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

dlsym_fn loader_real_dlsym;
dlvsym_fn loader_real_dlvsym;

/* The dynamic symbol table of one loaded object. */
struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *old_hash;
};

/* glibc has relocated the entries of its own dynamic section; other C libraries leave offsets. */
static const void *at(ElfW(Addr) base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static struct symbols symbols_of(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
    struct symbols found = {NULL, NULL, NULL, NULL};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB)
            found.table = at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_STRTAB)
            found.strings = at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            found.gnu_hash = at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_HASH)
            found.old_hash = at(base, dynamic->d_un.d_ptr);
    }
    return found;
}

static uint32_t gnu_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool is_definition(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    return symbol->st_shndx != SHN_UNDEF && same_text(symbols->strings + symbol->st_name, name);
}

static const ElfW(Sym) * find_by_gnu_hash(const struct symbols *symbols, const char *name)
{
    const uint32_t *table = symbols->gnu_hash;
    uint32_t buckets = table[0], first = table[1], bloom_words = table[2];
    const uint32_t *bucket = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = gnu_hash_of(name), index = buckets == 0 ? 0 : bucket[hash % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1) && is_definition(symbols, index, name))
            return &symbols->table[index];
        if (entry & 1)
            return NULL;
    }
}

static const ElfW(Sym) * find_by_old_hash(const struct symbols *symbols, const char *name)
{
    for (uint32_t index = 1; index < symbols->old_hash[1]; index++)
        if (is_definition(symbols, index, name))
            return &symbols->table[index];
    return NULL;
}

static void *find_in(const struct link_map *object, const char *name)
{
    struct symbols symbols = symbols_of(object->l_addr, object->l_ld);
    if (symbols.table == NULL || symbols.strings == NULL)
        return NULL;
    const ElfW(Sym) *symbol = symbols.gnu_hash != NULL   ? find_by_gnu_hash(&symbols, name)
                              : symbols.old_hash != NULL ? find_by_old_hash(&symbols, name) : NULL;
    return symbol != NULL ? (void *)(object->l_addr + symbol->st_value) : NULL;
}

/* Before glibc 2.34 the functions live in libdl. */
static bool may_hold_dlsym(const struct link_map *object)
{
    const char *file = object->l_name != NULL ? object->l_name : "";
    for (const char *at = file; *at != '\0'; at++)
        if (*at == '/')
            file = at + 1;
    return begins_with(file, "libc.so") || begins_with(file, "libc-2") || begins_with(file, "libdl");
}

/*
 * The loader's own list of objects, as debuggers read it: calling a function for it, such as dl_iterate_phdr, would call a
 * sanitizer's. What we look for was there before the program began, so the front of the list does not change under us.
 */
void loader_prepare(void)
{
    if (__atomic_load_n(&loader_real_dlsym, __ATOMIC_ACQUIRE) != NULL)
        return;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        void *found = may_hold_dlsym(object) ? find_in(object, "dlsym") : NULL;
        if (found == NULL)
            continue;
        loader_real_dlvsym = (dlvsym_fn)find_in(object, "dlvsym");
        __atomic_store_n(&loader_real_dlsym, (dlsym_fn)found, __ATOMIC_RELEASE);
        return;
    }
}

void *loader_symbol(void *handle, const char *name)
{
    loader_prepare();
    return loader_real_dlsym != NULL ? loader_real_dlsym(handle, name) : NULL;
}
