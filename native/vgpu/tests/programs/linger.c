/*
 * linger BYTES: takes so many bytes and ends, but slowly: with an exit handler that was there before the GPU was used, and so runs when
 * the library's own is done. It says "ending" and waits for a line.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void linger(void)
{
    char line;
    if (write(1, "\"ending\"\n", 9) != 9 || read(0, &line, 1) != 1)
        _exit(3);
}

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long block;
    if (cuda == NULL || argc < 2 || atexit(linger) != 0)
        return 2;
    if (((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) != 0 ||
        ((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0) != 0 ||
        ((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(context) != 0 ||
        ((int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&block, strtoull(argv[1], NULL, 10)) != 0)
        _exit(4);
    return 0;
}
