/* The memory of modules' code. Functions of a context lie together in blocks of 2 MiB; one is loaded when it is first asked for
 * (CUDA_MODULE_LOADING=LAZY, the default) or with its module (EAGER). */
#define _GNU_SOURCE
#include "image.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t code_mutex = PTHREAD_MUTEX_INITIALIZER;

bool code_is_eager(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode && strcmp(mode, "EAGER") == 0;
}

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) & ~(BLOCK - 1);
}

bool code_load(struct context *context, struct kernel_text *kernel)
{
    pthread_mutex_lock(&code_mutex);
    uint64_t more = kernel->loaded ? 0 : kernel->code;
    uint64_t blocks = blocks_of(context->code_bytes + more) - blocks_of(context->code_bytes);
    bool fits = blocks == 0 || memory_charge(context->card, cu.slot, (struct charge){.bytes = blocks});
    if (fits) {
        context->code_bytes += more;
        kernel->loaded = true;
    }
    pthread_mutex_unlock(&code_mutex);
    return fits;
}

void code_unload(struct context *context, struct kernel_text *kernel)
{
    pthread_mutex_lock(&code_mutex);
    uint64_t less = kernel->loaded ? kernel->code : 0;
    uint64_t blocks = blocks_of(context->code_bytes) - blocks_of(context->code_bytes - less);
    context->code_bytes -= less;
    kernel->loaded = false;
    if (blocks)
        memory_release(context->card, cu.slot, (struct charge){.bytes = blocks});
    pthread_mutex_unlock(&code_mutex);
}
