/* The linker joins texts, which is all our images need; of machine code the first piece is what a module then reads. */
#define _GNU_SOURCE
#include "image.h"

#include <stdlib.h>
#include <string.h>

enum { PTX = 1 }; /* CUjitInputType */

EXPORT CUresult cuLinkCreate_v2(unsigned int count, int *options, void **values, CUlinkState *out)
{
    ENTER_CONTEXT(cuLinkCreate_v2, context);
    if (!out || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    struct link *l = handle_new(K_LINK);
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = handle_of(K_LINK, l);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState state, int type, void *data, size_t size, const char *name, unsigned int count,
                                 int *options, void **values)
{
    ENTER_CONTEXT(cuLinkAddData_v2, context);
    (void)name, (void)count, (void)options, (void)values;
    struct link *l = handle_get(K_LINK, state);
    if (!l)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!data || size == 0 || size > 1u << 28 || type < 0 || type > 5)
        return CUDA_ERROR_INVALID_VALUE;
    char *more = realloc(l->text, l->size + size + 17);
    if (!more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    l->text = more;
    CUresult rc = copy_bytes(l->text + l->size, data, size);
    if (rc)
        return rc;
    l->size += size;
    while (type == PTX && l->size > 0 && l->text[l->size - 1] == 0)
        l->size--;
    memset(l->text + l->size, 0, 17);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, int type, const char *path, unsigned int count, int *options, void **values)
{
    ENTER_CONTEXT(cuLinkAddFile_v2, context);
    char *text;
    size_t size;
    CUresult rc = image_from_file(path, &text, &size);
    if (rc == CUDA_SUCCESS) {
        rc = cuLinkAddData_v2(state, type, text, size, path, count, options, values);
        free(text);
    }
    return rc;
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
    ENTER(cuLinkComplete);
    struct link *l = handle_get(K_LINK, state);
    if (!l)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!image || !l->text)
        return CUDA_ERROR_INVALID_VALUE;
    *image = l->text;
    if (size)
        *size = l->size + 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
    ENTER(cuLinkDestroy);
    struct link *l = handle_get(K_LINK, state);
    if (!l || !handle_drop(K_LINK, state))
        return CUDA_ERROR_INVALID_HANDLE;
    free(l->text);
    return CUDA_SUCCESS;
}
