/*
 * Linked against the driver and NVML, as programs are that name functions at build time: says for every hooked name where a
 * direct call of it would go. One line "direct NAME OBJECT NAME" each, as the program symbols does; what the driver lacks is
 * "- -". The references are weak, so that one program starts on older drivers too.
 *
 *     linked absent      calls a function that only CUDA 12.5 and later have, and prints its answer
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define HOOK(library, name, kind, since, result, parameters, arguments, shape) extern void name(void) __attribute__((weak));
#include "hooks.def"
#undef HOOK
extern void cuStreamCreate(void) __attribute__((weak));
extern void nvmlDeviceGetName(void) __attribute__((weak));

static const struct {
    const char *name;
    void (*function)(void);
} names[] = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) {#name, name},
#include "hooks.def"
#undef HOOK
    {"cuStreamCreate", cuStreamCreate},
    {"nvmlDeviceGetName", nvmlDeviceGetName},
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "absent") == 0) {
        void *context = NULL;
        void (*volatile entry)(void) = cuCtxCreate_v4; /* declared above without its parameters */
        printf("%d\n", ((int (*)(void **, void *, unsigned, int))entry)(&context, NULL, 0, 0));
        return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Dl_info info;
        if (names[i].function == NULL || dladdr((void *)names[i].function, &info) == 0) {
            printf("direct %s - -\n", names[i].name);
            continue;
        }
        const char *slash = strrchr(info.dli_fname, '/');
        printf("direct %s %s %s\n", names[i].name, slash != NULL ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "-");
    }
    return 0;
}
