/*
 * Binds to the oldest versions of the C library's symbols, so that one build serves images back to glibc 2.17 (spec hami-core
 * 6.2). Included by the build before every source file. What moved into libc later is found in libdl and libpthread there.
 */
#ifndef VGPU_OLD_GLIBC_H
#define VGPU_OLD_GLIBC_H

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define DLADDR1 "GLIBC_2.3.3"
#define SETNAME "GLIBC_2.12"
#else
#define OLDEST "GLIBC_2.17"
#define DLADDR1 OLDEST
#define SETNAME OLDEST
#endif
#define BIND(name, version) __asm__(".symver " #name "," #name "@" version)

BIND(dlopen, OLDEST);
BIND(dladdr, OLDEST);
BIND(dladdr1, DLADDR1);
BIND(pthread_create, OLDEST);
BIND(pthread_mutex_trylock, OLDEST);
BIND(pthread_mutex_timedlock, OLDEST);
BIND(pthread_attr_setstacksize, OLDEST);
BIND(pthread_setname_np, SETNAME);
BIND(pthread_sigmask, OLDEST);

#endif
