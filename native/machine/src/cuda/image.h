#ifndef PUMICE_MACHINE_IMAGE_H
#define PUMICE_MACHINE_IMAGE_H

#include "objects.h"

CUresult image_read(struct module *m, const void *image);
void image_forget(struct module *m);
struct kernel_text *image_kernel(struct module *m, const char *name); /* NULL: no such kernel */
void kernel_describe(struct kernel_text *k);
CUresult image_from_file(const char *path, char **out); /* out: to be freed; followed by zeros */

/* code.c; load: false when the card has no room */
bool code_is_eager(void);
bool code_load(struct context *context, struct kernel_text *kernel);
void code_unload(struct context *context, struct kernel_text *kernel);

#endif
