/* Memory of other interfaces (Vulkan and the like): it can be imported and let go. It is nobody's here, so it takes nothing of a card,
 * and there is nothing in it to be mapped. */
#include "objects.h"

struct described {
    int type;
    uint64_t handle[2];
    unsigned long long size;
    unsigned int flags, reserved[16];
};

EXPORT CUresult cuImportExternalMemory(void **out, const struct described *described)
{
    ENTER_CONTEXT(cuImportExternalMemory, context);
    (void)context;
    if (!out || !described || described->type != 1 || described->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct external *e = handle_new(K_EXTERNAL);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->bytes = described->size;
    *out = handle_of(K_EXTERNAL, e);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDestroyExternalMemory(void *handle)
{
    ENTER(cuDestroyExternalMemory);
    if (!handle_get(K_EXTERNAL, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    handle_drop(K_EXTERNAL, handle);
    return CUDA_SUCCESS;
}
