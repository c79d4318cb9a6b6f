/* cudaDeviceProp, in the layouts of CUDA 11, 12 and 13. */
#include "runtime.h"

#include <string.h>

#if RUNTIME <= 12
#define OLD INT
#define NEW(name, attribute)
#define RESERVED 63
#else
#define OLD(name, attribute)
#define NEW INT
#define RESERVED 56
#endif

#define SIZE(name, attribute) size_t name;
#define INT(name, attribute) int name;
#define INT2(name, first, second) int name[2];
#define INT3(name, first, second, third) int name[3];
struct properties {
    char name[256];
    CUuuid uuid;
    char luid[8];
    unsigned luid_node;
    size_t total;
#include "properties.def"
    int reserved[RESERVED];
};
_Static_assert(sizeof(struct properties) == (RUNTIME <= 12 ? 1032 : 1008), "cudaDeviceProp");
#undef SIZE
#undef INT
#undef INT2
#undef INT3

#define PLACE(name, index) offsetof(struct properties, name) + (index) * sizeof(int)
#define SIZE(name, attribute) {PLACE(name, 0), attribute, sizeof(size_t)},
#define INT(name, attribute) {PLACE(name, 0), attribute, sizeof(int)},
#define INT2(name, first, second) INT(name, first) {PLACE(name, 1), second, sizeof(int)},
#define INT3(name, first, second, third) INT2(name, first, second) {PLACE(name, 2), third, sizeof(int)},
static const struct { size_t at; int attribute; size_t bytes; } fields[] = {
#include "properties.def"
};

static int properties_of(struct properties *out, int device)
{
    struct properties p = {0};
    int rc = THE(cuDeviceGetName)(p.name, sizeof p.name, device);
    rc = rc ? rc : THE(cuDeviceGetUuid)(&p.uuid, device);
    rc = rc ? rc : THE(cuDeviceTotalMem)(&p.total, device);
    for (size_t i = 0; i < sizeof fields / sizeof *fields && rc == 0; i++) {
        int value = 0;
        rc = THE(cuDeviceGetAttribute)(&value, fields[i].attribute, device);
        if (rc == CUDA_ERROR_INVALID_VALUE) /* younger than the driver: it has none of it */
            rc = value = 0;
        size_t wide = (size_t)value;
        memcpy((char *)&p + fields[i].at, fields[i].bytes == sizeof wide ? (void *)&wide : (void *)&value, fields[i].bytes);
    }
    if (rc == 0)
        *out = p;
    return rc;
}

#if RUNTIME <= 12
/* That of CUDA 11 ends before what CUDA 12 added. */
enum { FIRST_BYTES = offsetof(struct properties, hostRegisterSupported) };
_Static_assert(FIRST_BYTES == 728, "cudaDeviceProp of CUDA 11");
EXPORT int cudaGetDeviceProperties(void *out, int device)
{
    struct properties all;
    int rc = out ? driver_ready() : CUDA_ERROR_INVALID_VALUE;
    rc = rc ? rc : properties_of(&all, device);
    if (rc == 0)
        memcpy(out, &all, FIRST_BYTES);
    return settle(rc);
}
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif
EXPORT int cudaGetDeviceProperties(struct properties *out, int device)
{
    int rc = out ? driver_ready() : CUDA_ERROR_INVALID_VALUE;
    return settle(rc ? rc : properties_of(out, device));
}
