/* User objects: what a program wants kept until its last reference goes, those of graphs included. The driver calls the destructor at
 * some later time; here it is called by whoever gives the last reference back, and no lock is held then. */
#include "graph.h"

#include <stdlib.h>

static CUresult give_back(CUuserObject handle, uint64_t count)
{
    struct user_object *u = handle_get(K_USER_OBJECT, handle);
    if (!u)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t had = atomic_load(&u->references);
    do
        if (had < count)
            return CUDA_ERROR_INVALID_VALUE;
    while (!atomic_compare_exchange_weak(&u->references, &had, had - count));
    CUhostFn destroy = u->destroy;
    void *data = u->data;
    if (had == count && handle_drop(K_USER_OBJECT, handle))
        destroy(data);
    return CUDA_SUCCESS;
}

static struct held **held_at(struct held **list, CUuserObject object)
{
    while (*list && (*list)->object != object)
        list = &(*list)->next;
    return list;
}

/* The references themselves are the caller's business. */
static bool held_add(struct held **list, CUuserObject object, uint64_t count)
{
    struct held **at = held_at(list, object);
    if (!*at && !(*at = calloc(1, sizeof **at)))
        return false;
    (*at)->object = object;
    (*at)->count += count;
    return true;
}

bool held_copy(struct held **to, const struct held *from)
{
    for (; from; from = from->next) {
        struct user_object *u = handle_get(K_USER_OBJECT, from->object);
        if (!u || !held_add(to, from->object, 1))
            return false;
        atomic_fetch_add(&u->references, 1);
    }
    return true;
}

void held_end(struct held **list)
{
    while (*list) {
        struct held *one = *list;
        *list = one->next;
        give_back(one->object, one->count);
        free(one);
    }
}

enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };
#define MOST 0x7fffffffu /* references by one call, as cuda.h says */

EXPORT CUresult cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy, unsigned int count, unsigned int flags)
{
    ENTER(cuUserObjectCreate);
    if (!out || !destroy || count == 0 || count > MOST || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct user_object *u = handle_new(K_USER_OBJECT);
    if (!u)
        return CUDA_ERROR_OUT_OF_MEMORY;
    u->references = count;
    u->destroy = destroy;
    u->data = data;
    *out = handle_of(K_USER_OBJECT, u);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    ENTER(cuUserObjectRetain);
    struct user_object *u = handle_get(K_USER_OBJECT, object);
    if (!u || count == 0 || count > MOST)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&u->references, count);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    ENTER(cuUserObjectRelease);
    return count && count <= MOST ? give_back(object, count) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    ENTER(cuGraphRetainUserObject);
    struct graph *g = handle_get(K_GRAPH, graph);
    struct user_object *u = handle_get(K_USER_OBJECT, object);
    if (!g || !u || count == 0 || count > MOST || flags > MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!held_add(&g->held, object, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (flags != MOVE)
        atomic_fetch_add(&u->references, count);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    ENTER(cuGraphReleaseUserObject);
    struct graph *g = handle_get(K_GRAPH, graph);
    struct held **at = g ? held_at(&g->held, object) : NULL;
    if (!at || !*at || count == 0 || (*at)->count < count)
        return CUDA_ERROR_INVALID_VALUE;
    struct held *one = *at;
    one->count -= count;
    if (one->count == 0) {
        *at = one->next;
        free(one);
    }
    return give_back(object, count);
}
