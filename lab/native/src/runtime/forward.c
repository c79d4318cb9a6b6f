/* The entries of calls.def: the same words to the driver's call. An argument of fewer bits stays what it is in its register or on the
 * stack, on x86-64 and AArch64 alike. */
#include "runtime.h"

#define P0 void
#define P1 word a
#define P2 P1, word b
#define P3 P2, word c
#define P4 P3, word d
#define P5 P4, word e
#define P6 P5, word f
#define P7 P6, word g
#define P8 P7, word h
#define A0
#define A1 a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A7 A6, g
#define A8 A7, h

#define FORWARD(n, name, row, need, per_thread) \
    EXPORT int name(P##n); \
    EXPORT int name(P##n) \
    { \
        int rc = need(); \
        return settle(rc ? rc : ((int (*)(P##n))driver_function(F_##row, per_thread))(A##n)); \
    }
#define REFUSED(name) \
    EXPORT int name(void); \
    EXPORT int name(void) \
    { \
        return settle(CUDA_ERROR_NOT_SUPPORTED); \
    }

#define PLAIN(n, name, driver, version) FORWARD(n, name, name, driver_ready, false)
#define CALL(n, name, driver, version) FORWARD(n, name, name, in_context, false)
#define STREAM(n, name, driver, version) CALL(n, name, driver, version) FORWARD(n, name##_ptsz, name, in_context, true)
#define DRIVER(name, version, parameters)
#include "calls.def"
