/* nvidia-cuda-mps-control of the emulated machine: the daemon of one pipe directory and the command line that speaks to it. */
#define _GNU_SOURCE
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 5000
#define QUEUE 64

char pipe_directory[64 + 4096];
char devices[DEVICES][48];
int device_count;

static struct bounds defaults = {.percent = 100};
static struct { pid_t pid; uid_t uid; } server; /* one at a time, of one user */

bool percent_of(const char *text, double *percent)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0) || value > 100)
        return false;
    *percent = value;
    return true;
}

bool mib_of(const char *text, uint64_t *mib)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *text == '-' || (*end != 'G' && *end != 'M') || end[1] || value > 1ull << 32)
        return false;
    *mib = *end == 'G' ? value << 10 : value;
    return true;
}

int device_of(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end != text && !*end)
        return value < DEVICES && (device_count == 0 || value < (unsigned long)device_count) ? (int)value : -1;
    for (int i = 0; i < device_count; i++)
        if (strcasecmp(devices[i], text) == 0)
            return i;
    return -1;
}

static void devices_look(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char copy[DEVICES * 48];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *item = strtok(copy, ", "); item && device_count < DEVICES; item = strtok(NULL, ", "))
        snprintf(devices[device_count++], sizeof devices[0], "%s", item);
}

/* ---- servers ---- */

static bool running(void)
{
    while (server.pid > 0 && waitpid(-1, NULL, WNOHANG) > 0)
        ;
    return server.pid > 0 && kill(server.pid, 0) == 0;
}

static void server_stop(void)
{
    if (running()) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
    }
    char path[sizeof pipe_directory + 32];
    snprintf(path, sizeof path, "%s/server-%d", pipe_directory, (int)server.pid);
    unlink(path);
    server.pid = 0;
}

static int clients_of(pid_t pid)
{
    char answer[ANSWER];
    int lines = 0;
    if (server_ask(pid, "clients", answer, sizeof answer))
        for (const char *at = answer; (at = strchr(at, '\n')); at++)
            lines++;
    return lines;
}

/* Clients of another user wait until those of the present one have ended. */
static const char *server_for(uid_t uid)
{
    if (running() && server.uid != uid) {
        if (clients_of(server.pid) > 0)
            return "wait\n";
        server_stop();
    }
    if (!running()) {
        server.pid = server_start(uid, &defaults);
        server.uid = uid;
    }
    return server.pid > 0 ? NULL : "refused\n";
}

static void client(uid_t uid, char *answer)
{
    const char *problem = server_for(uid);
    if (problem)
        strcpy(answer, problem);
    else
        sprintf(answer, "server-%d\n", (int)server.pid);
}

/* ---- commands ---- */

static bool ours(const char *pid)
{
    return pid && running() && atoi(pid) == server.pid;
}

static void relay(const char *what, const char *first, const char *second, char *answer)
{
    char line[256];
    snprintf(line, sizeof line, "%s %s %s", what, first ? first : "", second ? second : "");
    if (!server_ask(server.pid, line, answer, ANSWER))
        strcpy(answer, "the server does not answer\n");
}

/* The server's line of bounds that begins with `word`, its last word alone. */
static void bound_of(const char *word, int nth, const char *unit, char *answer)
{
    char all[ANSWER];
    server_ask(server.pid, "bounds", all, sizeof all);
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n"))
        if (strncmp(line, word, strlen(word)) == 0 && nth-- == 0)
            sprintf(answer, "%s%s\n", strrchr(line, ' ') + 1, unit);
}

#define IS(word) (strcmp(name, word) == 0)

static void command(char *line, char *answer)
{
    char *name = strtok(line, " \t"), *a = strtok(NULL, " \t"), *b = strtok(NULL, " \t"), *c = strtok(NULL, " \t");
    if (!name)
        return;
    int device;
    if (IS("get_server_list")) {
        if (running())
            sprintf(answer, "%d\n", (int)server.pid);
    } else if (IS("get_server_status")) {
        strcpy(answer, ours(a) ? "ACTIVE\n" : "no such server\n");
    } else if (IS("get_client_list")) {
        if (!ours(a) || !server_ask(server.pid, "clients", answer, ANSWER))
            strcpy(answer, "no such server\n");
    } else if (IS("start_server")) {
        char *end;
        long uid = b ? strtol(b, &end, 10) : -1;
        const char *problem = a && strcmp(a, "-uid") == 0 && uid >= 0 && !*end ? server_for((uid_t)uid) : "usage: start_server -uid UID\n";
        strcpy(answer, problem ? problem : "");
    } else if (IS("get_default_active_thread_percentage")) {
        sprintf(answer, "%.1f\n", defaults.percent);
    } else if (IS("set_default_active_thread_percentage")) {
        if (a && percent_of(a, &defaults.percent))
            sprintf(answer, "%.1f\n", defaults.percent);
        else
            strcpy(answer, "the percentage must be above 0 and at most 100\n");
    } else if (IS("get_default_device_pinned_mem_limit")) {
        if (a && (device = device_of(a)) >= 0 && defaults.memory[device])
            sprintf(answer, "%lluM\n", (unsigned long long)defaults.memory[device]);
    } else if (IS("set_default_device_pinned_mem_limit")) {
        if (!a || !b || (device = device_of(a)) < 0 || !mib_of(b, &defaults.memory[device]))
            strcpy(answer, "usage: set_default_device_pinned_mem_limit DEVICE VALUE, the value in G or M\n");
    } else if (IS("set_active_thread_percentage") && ours(a)) {
        relay("percent", b, "", answer);
    } else if (IS("set_device_pinned_mem_limit") && ours(a)) {
        relay("memory", b, c, answer);
    } else if (IS("get_active_thread_percentage") && ours(a)) {
        bound_of("ok ", 0, "", answer);
    } else if (IS("get_device_pinned_mem_limit") && ours(a)) {
        bound_of("device ", b && device_of(b) > 0 ? device_of(b) : 0, "M", answer);
    } else {
        snprintf(answer, ANSWER, "unrecognized command %s\n", name);
    }
}

/* ---- the daemon ---- */

static int path_of(char *out, size_t size, const char *name)
{
    return snprintf(out, size, "%s/%s", pipe_directory, name);
}

/* Nothing of it is left when "quit" is answered. */
static void leave(void)
{
    char path[sizeof pipe_directory + 64];
    server_stop();
    path_of(path, sizeof path, "control");
    unlink(path);
    path_of(path, sizeof path, "nvidia-cuda-mps-control.pid");
    unlink(path);
}

static bool answered(int fd, bool *quit)
{
    char line[256], answer[ANSWER] = "";
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    if (!line_read(fd, line, sizeof line, PATIENCE_MS) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    if (strcmp(line, "client") == 0) {
        client(peer.uid, answer);
        text_write(fd, answer);
        return false;
    }
    if (peer.uid != 0 && peer.uid != getuid())
        strcpy(answer, "only the daemon's user may do that\n");
    else if (strcmp(line, "quit") == 0)
        leave(), *quit = true;
    else
        command(line, answer);
    return text_write(fd, answer) && text_write(fd, ".\n") && !*quit;
}

static void serve(int listening)
{
    int open_[QUEUE], count = 0;
    for (bool quit = false; !quit;) {
        struct pollfd ready[QUEUE + 1];
        int watched = count;
        for (int i = 0; i < watched; i++)
            ready[i] = (struct pollfd){open_[i], POLLIN, 0};
        ready[watched] = (struct pollfd){listening, POLLIN, 0};
        if (poll(ready, (nfds_t)watched + 1, -1) < 0)
            continue;
        for (int i = watched - 1; i >= 0 && !quit; i--) {
            if (!ready[i].revents || answered(open_[i], &quit))
                continue;
            close(open_[i]);
            open_[i] = open_[--count];
        }
        if (!quit && ready[watched].revents && count < QUEUE) {
            int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0)
                open_[count++] = fd;
        }
    }
}

static bool pid_write(int fd, pid_t pid)
{
    char text[16];
    int length = snprintf(text, sizeof text, "%d\n", (int)pid);
    return pwrite(fd, text, (size_t)length, 0) == length && ftruncate(fd, length) == 0; /* whoever reads meanwhile finds a pid */
}

static int daemon_run(bool background)
{
    char path[sizeof pipe_directory + 64];
    if (mkdir(pipe_directory, 0755) != 0 && errno != EEXIST) {
        fprintf(stderr, "Cannot create %s: %s\n", pipe_directory, strerror(errno));
        return 1;
    }
    devices_look();
    path_of(path, sizeof path, "nvidia-cuda-mps-control.pid");
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, lock < 0 ? "Cannot write %s\n" : "An instance of this daemon is already running: %s\n", path);
        return 1;
    }
    int listening = listen_at("control");
    if (listening < 0) {
        fprintf(stderr, "Cannot listen in %s\n", pipe_directory);
        return 1;
    }
    if (background) {
        pid_t child = fork();
        if (child != 0)
            _exit(child > 0 && pid_write(lock, child) ? 0 : 1); /* whoever started it may read its pid from now on */
        setsid();
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "nvidia-cuda-mps-control");
    if (!background && !pid_write(lock, getpid()))
        return 1;
    serve(listening);
    return 0;
}

/* ---- the command line ---- */

static int speak(void)
{
    char line[256], got[256];
    int fd = connect_to("control");
    if (fd < 0) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line)
            continue;
        if (!text_write(fd, line) || !text_write(fd, "\n"))
            return 1;
        for (;;) {
            if (!line_read(fd, got, sizeof got, -1))
                return 1;
            if (strcmp(got, ".") == 0)
                break;
            puts(got);
        }
        if (strcmp(line, "quit") == 0)
            break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *place = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(pipe_directory, sizeof pipe_directory, "%s", place && *place ? place : "/tmp/nvidia-mps");
    if (argc == 1)
        return speak();
    if (argc == 2 && (strcmp(argv[1], "-d") == 0 || strcmp(argv[1], "-f") == 0))
        return daemon_run(argv[1][1] == 'd');
    fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f]; without either, commands are read from the standard input\n");
    return 2;
}
