#ifndef PUMICE_MACHINE_IMAGE_H
#define PUMICE_MACHINE_IMAGE_H

#include "objects.h"

CUresult image_read(struct module *m, const void *image);
void image_forget(struct module *m);
struct kernel_text *image_kernel(struct module *m, const char *name); /* NULL: no such kernel */
void kernel_describe(struct kernel_text *k);
CUresult image_from_file(const char *path, char **out, size_t *size); /* out: to be freed; followed by zeros */

/* Adds a kernel that the reader of a format found; NULL: no memory. */
struct kernel_text *image_add_kernel(struct module *m, const char *name, size_t length);
struct global_text *image_add_global(struct module *m, const char *name, size_t length, uint64_t bytes);
bool kernel_add_parameter(struct kernel_text *k, unsigned index, uint32_t offset, uint32_t size);
size_t name_length(const char *at);                       /* of the identifier that begins there */
const char *name_kept(const char *from, size_t length);   /* names.c */

CUresult ptx_read(struct module *m, const char *text, size_t length);         /* image_ptx.c */
bool is_machine_code(const unsigned char head[16]);                           /* image_binary.c: a cubin, a fat binary, its wrapper */
bool machine_code_read(struct module *m, const void *image);                  /* false: not all of its names could be read */
bool cubin_read(struct module *m, const void *image);                         /* cubin.c */

/* module.c, for libraries too (library.c) */
CUresult module_load(enum kind kind, void **out, const void *image, CUcontext context);
CUresult module_unload(enum kind kind, void *handle);
CUresult module_function(struct module *m, void *handle, const char *name, CUfunction *out);
CUresult module_functions(struct module *m, void *handle, CUfunction *out, unsigned int most); /* its first ones */
CUresult module_global(struct module *m, const char *name, CUdeviceptr *address, size_t *bytes);
CUresult global_place(struct global_text *g, unsigned card, CUcontext context);

/* code.c; load: false when the card has no room */
bool code_is_eager(void);
bool code_load(struct context *context, struct kernel_text *kernel);
void code_unload(struct context *context, struct kernel_text *kernel);

#endif
