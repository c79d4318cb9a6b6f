/* Names and texts of errors. */
#include "runtime.h"

static const struct { int code; const char *name, *text; } errors[] = {
#define ERROR(code, name, text) {code, #name, text},
#include "errors.def"
};

EXPORT const char *cudaGetErrorName(int error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            return errors[i].name;
    return "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(int error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const char *text = errors[i].text;
        if (errors[i].code == error)
            return text || (THE(cuGetErrorString)(error, &text) == 0 && text) ? text : errors[i].name;
    }
    return "unrecognized error code";
}
