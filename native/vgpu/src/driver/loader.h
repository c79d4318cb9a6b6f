/*
 * The C library's own dlsym, found without calling dlsym: that name is ours in this process.
 *
 * Nothing here locks, allocates or calls a function that somebody may stand in for: a malloc replacement may ask for symbols while it is itself being asked for memory.
 */
#ifndef VGPU_LOADER_H
#define VGPU_LOADER_H

#include <stdbool.h>

/* For code that may run before anything else in the process: a sanitizer's strcmp is not ready yet when it asks for symbols. */
static inline bool same_text(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b)
        a++, b++;
    return *a == *b;
}

static inline bool begins_with(const char *text, const char *head)
{
    while (*head != '\0' && *text == *head)
        text++, head++;
    return *head == '\0';
}

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);

extern dlsym_fn loader_real_dlsym; /* NULL until loader_prepare */
extern dlvsym_fn loader_real_dlvsym;

void loader_prepare(void);

/* A symbol of an open library, never one of ours. */
void *loader_symbol(void *handle, const char *name);

#endif
