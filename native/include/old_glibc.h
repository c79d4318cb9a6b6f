/*
 * Binds to the oldest versions of the C library's symbols, so that one build serves images back to glibc 2.17 (HAMi-core src
 * 6.2). Included by the build before every source file. What moved into libc later is found in libdl and libpthread there.
 */
#ifndef PUMICE_OLD_GLIBC_H
#define PUMICE_OLD_GLIBC_H

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define DLADDR1 "GLIBC_2.3.3"
#define SINCE_2_12 "GLIBC_2.12"
#else
#define OLDEST "GLIBC_2.17"
#define DLADDR1 OLDEST
#define SINCE_2_12 OLDEST
#endif
#define BIND(name, version) __asm__(".symver " #name "," #name "@" version)

BIND(dlopen, OLDEST);
BIND(dladdr, OLDEST);
BIND(dladdr1, DLADDR1);
BIND(pthread_create, OLDEST);
BIND(pthread_mutex_trylock, OLDEST);
BIND(pthread_mutex_timedlock, OLDEST);
BIND(pthread_attr_setstacksize, OLDEST);
BIND(pthread_setname_np, SINCE_2_12);
BIND(pthread_sigmask, OLDEST);
BIND(pthread_detach, OLDEST);
BIND(pthread_once, OLDEST);
BIND(pthread_key_create, OLDEST);
BIND(pthread_getspecific, OLDEST);
BIND(pthread_setspecific, OLDEST);
BIND(pthread_mutexattr_init, OLDEST);
BIND(pthread_mutexattr_destroy, OLDEST);
BIND(pthread_mutexattr_setpshared, OLDEST);
BIND(pthread_mutexattr_setrobust, SINCE_2_12);
BIND(pthread_mutex_consistent, SINCE_2_12);

#endif
