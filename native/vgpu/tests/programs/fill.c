/*
 * fill BYTES: takes blocks of so many bytes until one is refused, then halves of it down to a single byte, so that nothing is
 * left to be had. Prints [bytes granted, bytes that were free before].
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *need(void *cuda, const char *name)
{
    void *found = dlsym(cuda, name);
    if (found == NULL)
        exit(2);
    return found;
}

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long block;
    size_t available, total, granted = 0;
    if (cuda == NULL || argc < 2)
        return 2;
    int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))need(cuda, "cuMemAlloc_v2");
    if (((int (*)(unsigned))need(cuda, "cuInit"))(0) ||
        ((int (*)(void **, int))need(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0) ||
        ((int (*)(void *))need(cuda, "cuCtxSetCurrent"))(context) ||
        ((int (*)(size_t *, size_t *))need(cuda, "cuMemGetInfo_v2"))(&available, &total))
        return 3;
    for (size_t size = strtoull(argv[1], NULL, 10); size > 0; size /= 2) {
        int rc;
        while ((rc = allocate(&block, size)) == 0)
            granted += size;
        if (rc != 2) /* only out of memory is an answer */
            return 4;
    }
    printf("[%zu, %zu]\n", granted, available);
    return 0;
}
