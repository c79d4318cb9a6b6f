/*
 * A library that somebody else preloads: it defines a name and asks for the next definition of it, as tools do that stand in
 * for functions. If the look-up seemed to come from another object it would find itself and recurse.
 */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((visibility("default"))) void *pumice_probe(void)
{
    void *volatile next = dlsym(RTLD_NEXT, "pumice_probe"); /* not a tail call: the caller has to be this library */
    return next;
}

__attribute__((visibility("default"))) int setenv(const char *name, const char *value, int overwrite)
{
    int (*next)(const char *, const char *, int) = (int (*)(const char *, const char *, int))dlsym(RTLD_NEXT, "setenv");
    return next == NULL || next == setenv ? -7 : next(name, value, overwrite);
}
