/*
 * The C library's own dlsym, found without calling dlsym: that name is ours in this process.
 *
 * Nothing here locks or allocates: a malloc replacement may ask for symbols while it is itself being asked for memory.
 */
#ifndef VGPU_LOADER_H
#define VGPU_LOADER_H

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);

extern dlsym_fn loader_real_dlsym; /* NULL until loader_prepare */
extern dlvsym_fn loader_real_dlvsym;

void loader_prepare(void);

/* A symbol of an open library, never one of ours. */
void *loader_symbol(void *handle, const char *name);

#endif
