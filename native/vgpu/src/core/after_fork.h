/*
 * State that a child of fork does not share with its parent: named beside its definition, and zero in the child before anything
 * else runs there. A thread of the parent may have held any lock, half-way through any change; what pointers led to lies where
 * it is. Zeros are an unlocked mutex.
 */
#ifndef VGPU_AFTER_FORK_H
#define VGPU_AFTER_FORK_H

#include <string.h>

struct forgotten {
    void *what;
    size_t bytes;
};

#define FORGET_IN_CHILD(variable) \
    static struct forgotten forget_##variable __attribute__((used, section("vgpu_forget"))) = {&variable, sizeof variable}

/* The linker puts the names together. */
extern struct forgotten __start_vgpu_forget[] __attribute__((visibility("hidden"))), __stop_vgpu_forget[] __attribute__((visibility("hidden")));

static inline void forget_in_child(void)
{
    for (struct forgotten *each = __start_vgpu_forget; each < __stop_vgpu_forget; each++)
        memset(each->what, 0, each->bytes);
}

#endif
