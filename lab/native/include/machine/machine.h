/* The emulated machine's own calls beyond NVML and CUDA: its clock, its sleep, and the control of a test.
 *
 * Exported by libcuda.so.1 and libnvidia-ml.so.1 alike, so a program finds them with dlsym(handle, "pumice_machine_now_ns") and
 * lives in real time when they are absent. All work on the machine named by PUMICE_MACHINE; those that take `dir` on that one.
 *
 * Virtual time advances when every participant waits: threads that joined, plus every thread that waits right now. A joined thread that
 * blocks in anything else (a lock, a pipe, a join) holds the clock still: it leaves first. A dead process is taken out.
 */
#ifndef PUMICE_MACHINE_MACHINE_H
#define PUMICE_MACHINE_MACHINE_H

#include <stdint.h>

struct machine_state;

#ifdef __cplusplus
extern "C" {
#endif

/* The mapped state of PUMICE_MACHINE, or NULL. */
struct machine_state *pumice_machine_state(void);

/* 0 real, 1 virtual, -1 no machine. */
int pumice_machine_time_mode(void);
/* Machine time in ns; CLOCK_MONOTONIC in real mode and when there is no machine. */
uint64_t pumice_machine_now_ns(void);
/* Sleeps in machine time. 0, or -1 when there is no machine (then it slept in real time). */
int pumice_machine_sleep_ns(uint64_t ns);
int pumice_machine_sleep_until_ns(uint64_t deadline_ns);
/* Waits until *word != expected or the deadline (UINT64_MAX: none); pumice_machine_wake ends such waits early.
 * 0: the word changed, 1: deadline, -1: no machine. */
int pumice_machine_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns);
int pumice_machine_wake(void);
/* The calling thread takes part in virtual time / no longer. No effect in real time. 0, or -1 (no machine, table full). */
int pumice_machine_join(void);
int pumice_machine_leave(void);

/* Control: 0, or -1 with errno (ENOENT no machine, EINVAL, ENOSPC). dir NULL: PUMICE_MACHINE. */
int pumice_machine_raise_xid(const char *dir, unsigned card, uint64_t xid);
int pumice_machine_set_fault(const char *dir, const char *function, int code, uint64_t first, uint64_t count, uint64_t delay_ns,
                             int crash);
int pumice_machine_clear_faults(const char *dir);
int pumice_machine_advance_ns(const char *dir, uint64_t ns); /* virtual time: a push from outside */
int pumice_machine_reap(const char *dir);                    /* brings the accounts up to now and takes out the dead; how many */

#ifdef __cplusplus
}
#endif
#endif
