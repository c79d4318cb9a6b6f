/*
 * Says where each way of asking for a driver function leads: one line "PATH QUERY OBJECT NAME", where OBJECT is the file that
 * holds the function and NAME the exported name at its address.
 *
 *     symbols            every name of hooks.def by handle, RTLD_DEFAULT and RTLD_NEXT, and some names that are not hooked
 *     symbols proc       cuGetProcAddress for every base name at several versions, with each stream flag
 *     symbols many       a million look-ups; says by how many KiB the process grew
 *     symbols absent     asks for driver names in a process without a driver
 */
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *library, *name;
} names[] = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) {#library, #name},
#include "hooks.def"
#undef HOOK
    {"CUDA", "cuMemcpyHtoD_v2"},
    {"CUDA", "cuStreamCreate"},
    {"CUDA", "cuNoSuchFunction"},
    {"NVML", "nvmlDeviceGetName"},
};

static void tell(const char *path, const char *query, void *found)
{
    Dl_info info;
    if (found == NULL || dladdr(found, &info) == 0) {
        printf("%s %s - -\n", path, query);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    printf("%s %s %s %s\n", path, query, slash != NULL ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "-");
}

static void by_name(void *cuda, void *nvml)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *handle = strcmp(names[i].library, "CUDA") == 0 ? cuda : nvml;
        void *found = dlsym(handle, names[i].name);
        tell("handle", names[i].name, found);
        if (found != dlsym(handle, names[i].name))
            printf("handle %s changed its-answer\n", names[i].name);
        tell("default", names[i].name, dlsym(RTLD_DEFAULT, names[i].name));
        tell("next", names[i].name, dlsym(RTLD_NEXT, names[i].name));
    }
}

static void base_of(const char *name, char *base)
{
    strcpy(base, name);
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, "_ptsz") == 0)
        base[length -= 5] = '\0';
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v')
        base[length - 3] = '\0';
}

static void by_version(void *cuda)
{
    static const int versions[] = {2000,  3020,  4000,  5000,  6000,  7000,  9000,  10000, 10020, 11000, 11010,
                                   11020, 11030, 11040, 11060, 11080, 12000, 12020, 12050, 12090, 13000};
    int (*old)(const char *, void **, int, uint64_t) = (int (*)(const char *, void **, int, uint64_t))dlsym(cuda, "cuGetProcAddress");
    int (*new)(const char *, void **, int, uint64_t, int *) =
        (int (*)(const char *, void **, int, uint64_t, int *))dlsym(cuda, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char base[128], query[256];
        base_of(names[i].name, base);
        if (strcmp(names[i].library, "CUDA") != 0)
            continue;
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
            for (uint64_t flags = 0; flags < 3; flags++) {
                void *found = NULL;
                int status = -1, rc = -1;
                snprintf(query, sizeof query, "%s/%d/%d", base, versions[v], (int)flags);
                if (old != NULL && old(base, &found, versions[v], flags) == 0)
                    tell("old", query, found);
                found = NULL;
                if (new != NULL && (rc = new(base, &found, versions[v], flags, &status)) == 0)
                    tell("new", query, found);
                if (new != NULL)
                    printf("status %s %d %d\n", query, rc, status);
            }
    }
}

static int grown(void *cuda)
{
    for (int i = 0; i < 1000; i++)
        dlsym(cuda, names[(size_t)i % (sizeof names / sizeof *names)].name);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 1000000; i++)
        dlsym(cuda, names[(size_t)i % (sizeof names / sizeof *names)].name);
    printf("%ld\n", (long)((mallinfo2().uordblks - before) / 1024));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "absent") == 0) {
        tell("default", "cuInit", dlsym(RTLD_DEFAULT, "cuInit"));
        tell("next", "cuInit", dlsym(RTLD_NEXT, "cuInit"));
        tell("default", "curl_easy_init", dlsym(RTLD_DEFAULT, "curl_easy_init"));
        const char *error = dlerror();
        printf("error %s\n", error != NULL && strstr(error, "curl_easy_init") != NULL ? "kept" : "lost");
        tell("default", "puts", dlsym(RTLD_DEFAULT, "puts"));
        return 0;
    }
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL), *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (cuda == NULL || nvml == NULL)
        return 2;
    if (strcmp(mode, "many") == 0)
        return grown(cuda);
    if (strcmp(mode, "proc") == 0)
        by_version(cuda);
    else
        by_name(cuda, nvml);
    return 0;
}
