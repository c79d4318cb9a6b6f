#include "core/after_fork.h"

#include <string.h>

/* The linker puts the names together. */
extern struct forgotten __start_vgpu_forget[] __attribute__((visibility("hidden"))), __stop_vgpu_forget[] __attribute__((visibility("hidden")));

void forget_in_child(void)
{
    for (struct forgotten *each = __start_vgpu_forget; each < __stop_vgpu_forget; each++)
        memset(each->what, 0, each->bytes);
}
