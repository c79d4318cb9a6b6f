/* The process table's facts about a process of our own PID namespace. */
#ifndef VGPU_PROCESS_H
#define VGPU_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct process {
    uint64_t start_time; /* clock ticks since boot; 0: there is none */
    uint64_t program;    /* where its stack begins, which an exec changes; 0: not for us to see */
    bool stopped;        /* it ends or has ended: no more code of the program runs in its first thread */
    bool gone;           /* it has ended with all its threads, and everything it had open is closed */
};

struct process process_look(int pid);
uint64_t process_namespace(void);

#endif
