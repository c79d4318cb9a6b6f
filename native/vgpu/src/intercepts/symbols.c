/*
 * dlsym, dlvsym and cuGetProcAddress: the three ways in which programs find the driver's functions (HAMi-core src/libvgpu.c).
 *
 * glibc resolves RTLD_NEXT and RTLD_DEFAULT relative to the caller's return address. A wrapper that called the real dlsym would
 * change that address and send, for one, LLVM's OpenMP runtime into a recursion. So the exported dlsym is a few instructions
 * that ask whether the name is one of ours and otherwise jump to the real one with the stack as they found it.
 */
#include "intercepts/entries.h"

#include "core/quiet.h"
#include "driver/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

/* What the program would find without us; our own definition in the global scope does not count. */
static void *found_elsewhere(void *handle, const struct hook *hook)
{
    void *found = handle == RTLD_DEFAULT ? NULL : loader_symbol(handle, hook->name);
    return handle == RTLD_DEFAULT || found == hook->function ? loader_symbol(RTLD_NEXT, hook->name) : found;
}

/* The driver asks for its own names too, before it is initialised and from threads of its own. */
static bool asked_by_driver(void *caller, void *found)
{
    struct link_map *asking = NULL, *holding = NULL;
    Dl_info info;
    if (inside_driver > 0)
        return true;
    return dladdr1(caller, &info, (void **)&asking, RTLD_DL_LINKMAP) != 0 &&
           dladdr1(found, &info, (void **)&holding, RTLD_DL_LINKMAP) != 0 && asking == holding;
}

#define NO_SUCH_SYMBOL ((void *)1) /* the trampoline makes NULL of it; dlerror is already set */

/* Called by the trampolines alone. */
void *vgpu_symbol(void *handle, const char *name, void *caller);
void *vgpu_no_dlsym(void *handle, const char *name);

/* Whoever asks the C library for its own dlsym would look things up past us with it: it gets ours. NULL: the name is neither. */
static void *own_look_up(void *handle, const char *name)
{
    if (name == NULL || name[0] != 'd' || !(same_text(name, "dlsym") || same_text(name, "dlvsym")))
        return NULL;
    void *real = name[2] == 's' ? (void *)loader_real_dlsym : (void *)loader_real_dlvsym;
    if (real == NULL || inside_driver > 0 || loader_symbol(handle, name) != real)
        return NULL;
    return name[2] == 's' ? (void *)dlsym : (void *)dlvsym;
}

/* What the exported dlsym answers; NULL: let the real one answer. */
__attribute__((visibility("hidden"), used)) void *vgpu_symbol(void *handle, const char *name, void *caller)
{
    if (__builtin_expect(loader_real_dlsym == NULL, 0))
        loader_prepare();
    const struct hook *hook = name == NULL ? NULL : hook_by_name(name);
    if (hook == NULL)
        return own_look_up(handle, name);
    KEEP_ERRNO;
    void *found = found_elsewhere(handle, hook), *answer = hook->function;
    if (found == NULL)
        answer = NO_SUCH_SYMBOL;
    else if (asked_by_driver(caller, found))
        answer = found;
    return answer;
}

/* Nothing to look up with where no C library was found. */
__attribute__((visibility("hidden"), used)) void *vgpu_no_dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

#if defined(__x86_64__)
#define TRAMPOLINE(name, real) \
    __asm__(".text\n" \
            ".globl " name "\n" \
            ".type " name ", @function\n" name ":\n" \
            "  .cfi_startproc\n" \
            "  endbr64\n" \
            "  pushq %rdi\n  .cfi_adjust_cfa_offset 8\n" \
            "  pushq %rsi\n  .cfi_adjust_cfa_offset 8\n" \
            "  pushq %rdx\n  .cfi_adjust_cfa_offset 8\n" \
            "  movq 24(%rsp), %rdx\n" /* the return address: who asks */ \
            "  call vgpu_symbol\n" \
            "  popq %rdx\n  .cfi_adjust_cfa_offset -8\n" \
            "  popq %rsi\n  .cfi_adjust_cfa_offset -8\n" \
            "  popq %rdi\n  .cfi_adjust_cfa_offset -8\n" \
            "  testq %rax, %rax\n" \
            "  jne 1f\n" \
            "  movq " real "(%rip), %rax\n" \
            "  testq %rax, %rax\n" \
            "  je vgpu_no_dlsym\n" \
            "  jmpq *%rax\n" \
            "1: cmpq $1, %rax\n" \
            "  jne 2f\n" \
            "  xorl %eax, %eax\n" \
            "2: ret\n" \
            "  .cfi_endproc\n" \
            ".size " name ", .-" name "\n")
#elif defined(__aarch64__)
#define TRAMPOLINE(name, real) \
    __asm__(".text\n" \
            ".globl " name "\n" \
            ".type " name ", %function\n" name ":\n" \
            "  .cfi_startproc\n" \
            "  stp x29, x30, [sp, #-48]!\n" \
            "  .cfi_def_cfa_offset 48\n  .cfi_offset 29, -48\n  .cfi_offset 30, -40\n" \
            "  stp x0, x1, [sp, #16]\n" \
            "  str x2, [sp, #32]\n" \
            "  mov x2, x30\n" \
            "  bl vgpu_symbol\n" \
            "  mov x16, x0\n" \
            "  ldp x0, x1, [sp, #16]\n" \
            "  ldr x2, [sp, #32]\n" \
            "  ldp x29, x30, [sp], #48\n" \
            "  .cfi_def_cfa_offset 0\n  .cfi_restore 29\n  .cfi_restore 30\n" \
            "  cbnz x16, 1f\n" \
            "  adrp x16, " real "\n" \
            "  ldr x16, [x16, #:lo12:" real "]\n" \
            "  cbz x16, vgpu_no_dlsym\n" \
            "  br x16\n" \
            "1: cmp x16, #1\n" \
            "  csel x0, xzr, x16, eq\n" \
            "  ret\n" \
            "  .cfi_endproc\n" \
            ".size " name ", .-" name "\n")
#else
#error "no trampoline for this processor: the return address must stay the caller's"
#endif

__asm__(".hidden vgpu_symbol\n.hidden vgpu_no_dlsym\n.hidden loader_real_dlsym\n.hidden loader_real_dlvsym\n");
TRAMPOLINE("dlsym", "loader_real_dlsym");
TRAMPOLINE("dlvsym", "loader_real_dlvsym");

/* ---- cuGetProcAddress: ask the driver, translate the pointer --------------------------------------------------- */

enum { FLAG_PER_THREAD = 2, PROBE_VERSION = 3020 };

/* Whether the driver hands out the addresses it exports; asked once. 1 yes, 2 no. */
static int hands_out_exports(void)
{
    static int known;
    int state = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if (state != 0)
        return state;
    void *probe = NULL;
    int status = 0;
    CUresult rc = hooks[HOOK_cuGetProcAddress_v2].address != NULL
                      ? CUDA(cuGetProcAddress_v2("cuMemAlloc", &probe, PROBE_VERSION, 0, &status))
                      : CUDA(cuGetProcAddress("cuMemAlloc", &probe, PROBE_VERSION, 0));
    state = rc == CUDA_SUCCESS && probe != NULL && probe != hooks[HOOK_cuMemAlloc_v2].address ? 2 : 1;
    __atomic_store_n(&known, state, __ATOMIC_RELEASE);
    return state;
}

void translate_address(const char *symbol, void **function, int version, uint64_t flags)
{
    bool per_thread = (flags & FLAG_PER_THREAD) != 0;
    const struct hook *hook = hook_by_address(*function, symbol, per_thread);
    if (hook == NULL && hands_out_exports() == 2)
        hook = hook_by_version(symbol, version, per_thread);
    if (hook != NULL && hook->address != NULL)
        *function = hook->function;
}
