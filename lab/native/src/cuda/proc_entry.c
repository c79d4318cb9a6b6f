/* cuGetProcAddress in both forms; apart from its table because that declares every name without its parameters. */
#include "cuda.h"

EXPORT CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
    int fault = fault_check("cuGetProcAddress");
    return fault ? fault : symbol_look_up(symbol, out, version, flags, NULL);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status)
{
    int fault = fault_check("cuGetProcAddress_v2");
    return fault ? fault : symbol_look_up(symbol, out, version, flags, status);
}
