/* Handles: a number made of kind, generation and index, looked up in a table. Garbage is refused, a stale one too. Objects
 * of a kind are recycled among themselves and never unmapped, so a racing look-up reads an old object, not foreign memory. */
#define _GNU_SOURCE
#include "cuda.h"
#include "green.h"

#include <stdlib.h>
#include <string.h>

const size_t handle_sizes[KINDS] = {
    [K_CONTEXT] = sizeof(struct context), [K_STREAM] = sizeof(struct stream), [K_EVENT] = sizeof(struct event),
    [K_MODULE] = sizeof(struct module), [K_LIBRARY] = sizeof(struct module), [K_FUNCTION] = sizeof(struct function),
    [K_ARRAY] = sizeof(struct array), [K_MIPMAP] = sizeof(struct array), [K_POOL] = sizeof(struct pool),
    [K_GRAPH] = sizeof(struct graph), [K_NODE] = sizeof(struct node), [K_EXEC] = sizeof(struct graph_exec),
    [K_PHYSICAL] = sizeof(struct physical), [K_LINK] = sizeof(struct link), [K_EXTERNAL] = sizeof(struct external),
    [K_USER_OBJECT] = sizeof(struct user_object), [K_GREEN] = sizeof(struct green), [K_RESOURCES] = sizeof(struct resources),
    [K_CONDITION] = sizeof(struct condition),
};

struct handle_table handle_tables[KINDS] = {[0 ... KINDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

static struct object *at(enum kind kind, uint32_t index)
{
    char *chunk = atomic_load_explicit(&handle_tables[kind].chunks[index / HANDLE_CHUNK], memory_order_acquire);
    return (struct object *)(void *)(chunk + index % HANDLE_CHUNK * handle_sizes[kind]);
}

static struct object *fresh(enum kind kind)
{
    struct handle_table *t = &handle_tables[kind];
    if (!t->chunks)
        t->chunks = calloc(HANDLE_CHUNKS, sizeof *t->chunks);
    if (!t->chunks || t->count >= HANDLE_CHUNK * HANDLE_CHUNKS)
        return NULL;
    if (t->count % HANDLE_CHUNK == 0) {
        char *chunk = calloc(HANDLE_CHUNK, handle_sizes[kind]);
        if (!chunk)
            return NULL;
        atomic_store_explicit(&t->chunks[t->count / HANDLE_CHUNK], chunk, memory_order_release);
    }
    struct object *o = at(kind, t->count);
    o->index = t->count++;
    return o;
}

void *handle_new(enum kind kind)
{
    struct handle_table *t = &handle_tables[kind];
    pthread_mutex_lock(&t->mutex);
    struct object *o = t->free;
    if (o)
        t->free = o->next_free;
    else
        o = fresh(kind);
    if (o) {
        memset(o + 1, 0, handle_sizes[kind] - sizeof *o);
        atomic_fetch_add_explicit(&o->generation, 1, memory_order_release);
    }
    pthread_mutex_unlock(&t->mutex);
    return o;
}

void *handle_of(enum kind kind, const void *object)
{
    const struct object *o = object;
    uint64_t generation = atomic_load_explicit(&o->generation, memory_order_relaxed) & 0xffffff;
    return (void *)((uint64_t)(0x100u | kind) << 52 | generation << 28 | (uint64_t)o->index << 4);
}

void *handle_drop(enum kind kind, void *handle)
{
    struct handle_table *t = &handle_tables[kind];
    pthread_mutex_lock(&t->mutex);
    struct object *o = handle_get(kind, handle);
    if (o) {
        atomic_fetch_add_explicit(&o->generation, 1, memory_order_release);
        o->next_free = t->free;
        t->free = o;
    }
    pthread_mutex_unlock(&t->mutex);
    return o;
}

void handle_each(enum kind kind, void (*visit)(void *object, void *arg), void *arg)
{
    struct handle_table *t = &handle_tables[kind];
    pthread_mutex_lock(&t->mutex);
    uint32_t count = t->count;
    pthread_mutex_unlock(&t->mutex);
    for (uint32_t i = 0; i < count; i++) {
        struct object *o = at(kind, i);
        if (atomic_load_explicit(&o->generation, memory_order_acquire) & 1)
            visit(o, arg);
    }
}
