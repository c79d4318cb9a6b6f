/* Lines over sockets of the pipe directory. */
#define _GNU_SOURCE
#include "mps.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A folder whose path is too long for a socket's address is reached by a descriptor. */
static bool address(const char *name, struct sockaddr_un *out)
{
    static int folder = -1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if ((size_t)snprintf(out->sun_path, sizeof out->sun_path, "%s/%s", pipe_directory, name) < sizeof out->sun_path)
        return true;
    if (folder < 0 || fcntl(folder, F_GETFD) < 0)
        folder = open(pipe_directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return folder >= 0 && (size_t)snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", folder, name) < sizeof out->sun_path;
}

/* Anybody may connect: who may be served is decided by the user that the kernel names. */
int listen_at(const char *name)
{
    struct sockaddr_un where;
    if (!address(name, &where))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(where.sun_path);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&where, sizeof where) != 0 || chmod(where.sun_path, 0666) != 0 || listen(fd, 64) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

int connect_to(const char *name)
{
    struct sockaddr_un where;
    if (!address(name, &where))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&where, sizeof where) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool line_read(int fd, char *line, size_t size, int patience_ms)
{
    size_t length = 0;
    while (length + 1 < size) {
        struct pollfd ready = {fd, POLLIN, 0};
        if (poll(&ready, 1, patience_ms) != 1 || read(fd, line + length, 1) != 1)
            return false;
        if (line[length] == '\n')
            break;
        length++;
    }
    line[length] = 0;
    return true;
}

bool text_write(int fd, const char *text)
{
    size_t length = strlen(text);
    return send(fd, text, length, MSG_NOSIGNAL) == (ssize_t)length;
}
