/* Inside libdcmi.so: the return codes, and how a call begins (Huawei's DCMI API reference). */
#ifndef PUMICE_DCMI_H
#define PUMICE_DCMI_H

#include "npu_core.h"

enum dcmi_code {
    DCMI_OK = 0,
    DCMI_BAD_PARAMETER = -8001,
    DCMI_NOT_PERMITTED = -8002,
    DCMI_INTERNAL = -8005,
    DCMI_INVALID_DEVICE = -8007,
    DCMI_NO_DEVICE = -8008,
    DCMI_NOT_READY = -8012,
    DCMI_BUSY = -8020,
    DCMI_NOT_SUPPORTED = -8255
};

/* The lock of one call; released at every way out of the block. */
__attribute__((unused)) static inline void dcmi_leave(int *held)
{
    npu_unlock(*held);
}

#define ENTER(function)                                                     \
    if (!npu_attach() || !dcmi_ready())                                     \
        return DCMI_NOT_READY;                                              \
    __attribute__((cleanup(dcmi_leave))) int held_lock = npu_lock();        \
    if (held_lock < 0)                                                      \
        return DCMI_INTERNAL;                                               \
    int met_fault = npu_fault(#function);                                   \
    if (met_fault)                                                          \
        return met_fault
#define NEED(condition)                \
    if (!(condition))                  \
    return DCMI_BAD_PARAMETER

/* A call about one device: `view` is what this process sees of it. */
#define DEVICE(function, card, device)              \
    ENTER(function);                                \
    struct npu_view view;                           \
    if (!dcmi_view((card), (device), &view, NULL))  \
    return DCMI_INVALID_DEVICE

bool dcmi_ready(void);
/* The device of that card as this process sees it, and its logic id. */
bool dcmi_view(int card, int device, struct npu_view *out, unsigned *logic);

#endif
