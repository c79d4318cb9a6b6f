/* nvidia-cuda-mps-control of the emulated machine: what its daemon, its servers and its command line share.
 *
 * The commands and what they mean are NVIDIA's ("Multi-Process Service", tools and interface reference); how the parts talk is ours:
 * lines over UNIX sockets in CUDA_MPS_PIPE_DIRECTORY. `control` takes commands, and "client" from a program that wants a server. Each
 * server has `server-PID`, where "join" makes the sender its client for as long as the connection stands. */
#ifndef PUMICE_MACHINE_MPS_H
#define PUMICE_MACHINE_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DEVICES 16
#define ANSWER 4096

/* The limits of every client of a server. `memory` in MiB, 0: no limit, by the ordinal that the server gives the device. */
struct bounds {
    double percent;
    uint64_t memory[DEVICES];
};

extern char pipe_directory[64 + 4096];
extern char devices[DEVICES][48]; /* CUDA_VISIBLE_DEVICES of the daemon, by ordinal */
extern int device_count;          /* 0: all that there are */

/* Parsing; false: not what the command takes. */
bool percent_of(const char *text, double *percent);
bool mib_of(const char *text, uint64_t *mib); /* "10G", "512M" */
int device_of(const char *text);              /* an ordinal or the UUID of one of ours; -1 */

/* server.c: forks a server for `uid` and returns once it can be joined; -1: it could not be. */
pid_t server_start(uid_t uid, const struct bounds *bounds);
/* Asks the server; false: it is gone. */
bool server_ask(pid_t server, const char *line, char *answer, size_t size);

/* talk.c */
int listen_at(const char *name);
int connect_to(const char *name);
/* One line without its end, within `patience_ms`; false: the other side went away or is too slow. */
bool line_read(int fd, char *line, size_t size, int patience_ms);
bool text_write(int fd, const char *text);

#endif
