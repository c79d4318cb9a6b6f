/* Run with interposer.so preloaded before and after the library: 0 when each look-up found the next definition. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    void *(*probe)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "pumice_probe");
    if (probe == NULL)
        return 2;
    if (probe() != NULL)
        return 3;
    return setenv("PUMICE_CHAIN", "1", 1) == 0 && getenv("PUMICE_CHAIN") != NULL ? 0 : 4;
}
