/* Settings of the core dumps that a driver writes of a card: kept for the process and read back. No kernel faults here, so none is written. */
#define _GNU_SOURCE
#include "cuda.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ON_EXCEPTION = 1, TRIGGER_HOST, LIGHTWEIGHT, USER_TRIGGER, FILE_NAME, PIPE_NAME, FLAGS };
enum { NO_ABORT = 1 << 5, LIGHT = 0x4f };
#define KNOWN_FLAGS 0xc00000ffu
#define LONGEST 1024

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool on_exception, user_trigger;
static unsigned flags;
static char file_name[LONGEST], pipe_name[LONGEST];

static char *name_of(int setting)
{
    char *name = setting == FILE_NAME ? file_name : pipe_name, host[HOST_NAME_MAX + 1] = "";
    if (!*name && gethostname(host, sizeof host - 1) == 0)
        snprintf(name, LONGEST, "%s.cuda.%s.%d", setting == FILE_NAME ? "core" : "corepipe", host, (int)getpid());
    return name;
}

static bool is_on(int setting)
{
    switch (setting) {
    case ON_EXCEPTION: return on_exception;
    case TRIGGER_HOST: return !(flags & NO_ABORT);
    case LIGHTWEIGHT: return (flags & LIGHT) == LIGHT;
    default: return user_trigger;
    }
}

static void turn(int setting, bool on)
{
    switch (setting) {
    case ON_EXCEPTION: on_exception = on; break;
    case TRIGGER_HOST: flags = on ? flags & ~(unsigned)NO_ABORT : flags | NO_ABORT; break;
    case LIGHTWEIGHT: flags = on ? flags | LIGHT : flags & ~(unsigned)LIGHT; break;
    default: user_trigger = on; break;
    }
}

static CUresult set(int setting, const void *value, size_t size)
{
    if (setting == FILE_NAME || setting == PIPE_NAME) {
        size_t length = strnlen(value, size);
        if (length == 0 || length >= LONGEST)
            return CUDA_ERROR_INVALID_VALUE;
        if (setting == PIPE_NAME && user_trigger)
            return CUDA_ERROR_NOT_PERMITTED; /* somebody listens there */
        char *name = setting == FILE_NAME ? file_name : pipe_name;
        memcpy(name, value, length);
        name[length] = 0;
        return CUDA_SUCCESS;
    }
    unsigned wanted = 0;
    if (size < (setting == FLAGS ? sizeof wanted : sizeof(bool)))
        return CUDA_ERROR_INVALID_VALUE;
    if (setting != FLAGS) {
        turn(setting, *(const unsigned char *)value != 0);
        return CUDA_SUCCESS;
    }
    memcpy(&wanted, value, sizeof wanted);
    if (wanted & ~KNOWN_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    flags = wanted;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCoredumpSetAttributeGlobal(int setting, const void *value, const size_t *size)
{
    ENTER(cuCoredumpSetAttributeGlobal);
    if (setting < ON_EXCEPTION || setting > FLAGS || !value || !size)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    CUresult rc = set(setting, value, *size);
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* Without a place for the value, how many bytes it takes. */
EXPORT CUresult cuCoredumpGetAttributeGlobal(int setting, void *value, size_t *size)
{
    ENTER(cuCoredumpGetAttributeGlobal);
    if (setting < ON_EXCEPTION || setting > FLAGS || !size)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    bool on = is_on(setting);
    const void *from = setting == FLAGS ? (const void *)&flags : &on;
    size_t bytes = setting == FLAGS ? sizeof flags : sizeof on;
    if (setting == FILE_NAME || setting == PIPE_NAME) {
        from = name_of(setting);
        bytes = strlen(from) + 1;
    }
    bool fits = value && *size >= bytes;
    if (fits)
        memcpy(value, from, bytes);
    if (!value)
        *size = bytes;
    pthread_mutex_unlock(&mutex);
    return fits || !value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
