/* One user's server: who its clients are, and what each new one is held to. */
#define _GNU_SOURCE
#include "mps.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 48 /* of one card from compute capability 7.0 on */
#define PATIENCE_MS 2000

static struct { int fd; pid_t pid; } clients[CLIENTS];
static int count;
static uid_t daemon_user; /* who may do more than join */

static void add(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, ANSWER - used, format, args);
    va_end(args);
}

/* What a client is told: itself nothing decides here but the numbers. */
static void bounds_told(const struct bounds *b, char *answer)
{
    add(answer, "ok %d %g\n", (int)getpid(), b->percent);
    for (int i = 0; i < DEVICES; i++)
        if (i < device_count || b->memory[i])
            add(answer, "device %s %llu\n", i < device_count ? devices[i] : "-", (unsigned long long)b->memory[i]);
    add(answer, "end\n");
}

static bool changed(struct bounds *b, char *line)
{
    char *name = strtok(line, " "), *first = strtok(NULL, " "), *second = strtok(NULL, " ");
    if (!name)
        return false;
    if (strcmp(name, "percent") == 0)
        return first && percent_of(first, &b->percent);
    int device = strcmp(name, "memory") == 0 && first ? device_of(first) : -1;
    return device >= 0 && second && mib_of(second, &b->memory[device]);
}

/* Whether the connection stays: its sender is a client now. */
static bool answered(int fd, struct bounds *b)
{
    char line[256], answer[ANSWER] = "";
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    if (!line_read(fd, line, sizeof line, PATIENCE_MS) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    bool joins = false;
    if (strcmp(line, "join") == 0) {
        joins = peer.uid == getuid() && count < CLIENTS;
        if (joins)
            bounds_told(b, answer);
        else
            add(answer, count < CLIENTS ? "refused\n" : "full\n");
    } else if (peer.uid != 0 && peer.uid != daemon_user) {
        add(answer, "refused\n");
    } else if (strcmp(line, "clients") == 0) {
        for (int i = 0; i < count; i++)
            add(answer, "%d\n", (int)clients[i].pid);
        add(answer, "end\n");
    } else if (strcmp(line, "bounds") == 0) {
        bounds_told(b, answer);
    } else {
        add(answer, changed(b, line) ? "end\n" : "invalid\n");
    }
    if (!text_write(fd, answer) || !joins)
        return false;
    clients[count].fd = fd;
    clients[count++].pid = peer.pid;
    return true;
}

static void serve(int listening, struct bounds *bounds)
{
    for (;;) {
        struct pollfd ready[CLIENTS + 1];
        int watched = count;
        for (int i = 0; i < watched; i++)
            ready[i] = (struct pollfd){clients[i].fd, POLLIN, 0};
        ready[watched] = (struct pollfd){listening, POLLIN, 0};
        if (poll(ready, (nfds_t)watched + 1, -1) < 0)
            continue;
        for (int i = watched - 1; i >= 0; i--) { /* a client never says more: what is heard is its end */
            if (!ready[i].revents)
                continue;
            close(clients[i].fd);
            clients[i] = clients[--count];
        }
        if (ready[watched].revents) {
            int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0 && !answered(fd, bounds))
                close(fd);
        }
    }
}

pid_t server_start(uid_t uid, const struct bounds *bounds)
{
    int ready[2];
    if (pipe(ready) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct bounds own = *bounds;
        daemon_user = geteuid();
        char name[32], byte = 'y';
        snprintf(name, sizeof name, "server-%d", (int)getpid());
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        signal(SIGTERM, SIG_DFL);
        for (int fd = 3; fd < 256; fd++)
            if (fd != ready[1])
                close(fd);
        int listening = listen_at(name);
        if (listening < 0 || (geteuid() == 0 && setresuid(uid, uid, uid) != 0) || geteuid() != uid || write(ready[1], &byte, 1) != 1)
            _exit(1);
        close(ready[1]);
        serve(listening, &own);
    }
    char byte = 0;
    close(ready[1]);
    bool up = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    return up ? pid : -1;
}

bool server_ask(pid_t server, const char *line, char *answer, size_t size)
{
    char name[32], got[256];
    answer[0] = 0;
    snprintf(name, sizeof name, "server-%d", (int)server);
    int fd = connect_to(name);
    bool whole = false;
    if (fd >= 0 && text_write(fd, line) && text_write(fd, "\n")) {
        while (!whole && line_read(fd, got, sizeof got, PATIENCE_MS)) {
            whole = strcmp(got, "end") == 0 || strcmp(got, "invalid") == 0;
            size_t used = strlen(answer);
            if (strcmp(got, "end") != 0)
                snprintf(answer + used, size - used, "%s\n", got);
        }
    }
    if (fd >= 0)
        close(fd);
    return whole;
}
