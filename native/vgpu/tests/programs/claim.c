/* claim BYTES...: asks for each in turn on device 0 and prints the driver's answers. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long block;
    if (cuda == NULL)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0)
        return 3;
    for (int i = 1; i < argc; i++)
        printf("%d\n", allocate(&block, strtoull(argv[i], NULL, 10)));
    return 0;
}
