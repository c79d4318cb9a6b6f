/* CUPTI by name, for programs that load libcupti.so.13: it traces nothing, and says so.
 *
 * NVIDIA's takes its hooks from the driver's private tables. Where it is given none, as here (ADR 91), 13.2 calls itself until the stack
 * is full, so that who only asks whether there is a profiler, as PyTorch's and JAX do, ends. */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_PARAMETER = 1, NOT_SUPPORTED = 27, VERSION = 130500 };

#define REFUSED(name)                                                                                                                      \
    EXPORT int name(void)                                                                                                                  \
    {                                                                                                                                      \
        return NOT_SUPPORTED;                                                                                                              \
    }
#include "names.def"

EXPORT int cuptiGetVersion(uint32_t *version)
{
    if (!version)
        return INVALID_PARAMETER;
    *version = VERSION;
    return SUCCESS;
}

static int text_of(int result, const char **text, const char *refusal)
{
    if (!text)
        return INVALID_PARAMETER;
    *text = result == SUCCESS ? "CUPTI_SUCCESS" : result == NOT_SUPPORTED ? refusal : "an error that this CUPTI does not give";
    return SUCCESS;
}

EXPORT int cuptiGetResultString(int result, const char **text)
{
    return text_of(result, text, "CUPTI_ERROR_NOT_SUPPORTED");
}

EXPORT int cuptiGetErrorMessage(int result, const char **text)
{
    return text_of(result, text, "the emulated machine traces nothing");
}
