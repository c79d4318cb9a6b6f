/* Peer access: whose memory the kernels of another card reach. Nothing is done with it here but to refuse what hardware refuses;
 * copies go from card to card with it or without, but for what pools gave (copy.c). */
#define _GNU_SOURCE
#include "cuda.h"

bool devices_peers(CUdevice one, CUdevice other)
{
    const struct device *a = &cu.devices[one], *b = &cu.devices[other];
    return a->lane == 0 && b->lane == 0 && cards_peers(a->card, b->card);
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    ENTER_DEVICE(cuDeviceCanAccessPeer, device);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer < 0 || peer >= cu.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = devices_peers(device, peer);
    return CUDA_SUCCESS;
}

enum { PERFORMANCE_RANK = 1, ACCESS_SUPPORTED, NATIVE_ATOMICS, ARRAYS };

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int number, CUdevice source, CUdevice destination)
{
    ENTER_DEVICE(cuDeviceGetP2PAttribute, source);
    if (!value || number < PERFORMANCE_RANK || number > ARRAYS)
        return CUDA_ERROR_INVALID_VALUE;
    if (destination < 0 || destination >= cu.device_count || source == destination)
        return CUDA_ERROR_INVALID_DEVICE;
    bool peers = devices_peers(source, destination), linked = cards_linked(cu.devices[source].card, cu.devices[destination].card);
    *value = number == PERFORMANCE_RANK ? 0 : peers && (number != NATIVE_ATOMICS || linked);
    return CUDA_SUCCESS;
}

static CUresult other_context(const struct context *context, CUcontext peer, struct context **other)
{
    *other = context_of(peer);
    return *other && *other != context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    ENTER_CONTEXT(cuCtxEnablePeerAccess, context);
    struct context *other;
    CUresult rc = other_context(context, peer, &other);
    if (rc || flags != 0)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    if (!devices_peers(context->device, other->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint32_t before = __atomic_fetch_or(&context->peers, 1u << other->card, __ATOMIC_RELAXED);
    return before >> other->card & 1 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    ENTER_CONTEXT(cuCtxDisablePeerAccess, context);
    struct context *other;
    CUresult rc = other_context(context, peer, &other);
    if (rc)
        return rc;
    uint32_t before = __atomic_fetch_and(&context->peers, ~(1u << other->card), __ATOMIC_RELAXED);
    return before >> other->card & 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
