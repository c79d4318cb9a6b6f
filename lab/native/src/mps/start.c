/* The program starts by the oldest version of the C library's entry, which newer ones keep; the linker sends the call of crt1.o here
 * (--wrap). What the compiler's start files pass along for constructors is passed on as it is. */
#if defined(__x86_64__)
__asm__(".symver old_start,__libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver old_start,__libc_start_main@GLIBC_2.17");
#endif

typedef int main_function(int, char **, char **);
int old_start(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __wrap___libc_start_main(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

int __wrap___libc_start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                             void (*loader_fini)(void), void *stack_end)
{
    return old_start(main, argc, argv, init, fini, loader_fini, stack_end);
}
