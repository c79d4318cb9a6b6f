/* Regions of a test's own: a directory that is made and removed with it, files in it, and processes that share them. */
#ifndef VGPU_TEST_REGIONS_H
#define VGPU_TEST_REGIONS_H

#include "check.h"
#include "core/config.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/vgpu-test-XXXXXX";

static inline struct config config_for(const char *name, uint64_t limit)
{
    struct config config;
    memset(&config, 0, sizeof config);
    snprintf(config.region_path, sizeof config.region_path, "%s/%s", directory, name);
    for (int i = 0; i < REGION_DEVICES; i++) {
        config.memory_limit[i] = limit;
        config.sm_limit[i] = 100;
    }
    config.any_memory_variable = limit != 0;
    config.priority = 1;
    return config;
}

static inline void write_file(const char *name, const void *bytes, size_t count, off_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && pwrite(fd, bytes, count, 0) == (ssize_t)count && ftruncate(fd, size) == 0);
    close(fd);
}

static inline bool directory_made(void)
{
    return mkdtemp(directory) != NULL;
}

static inline bool directory_removed(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command) == 0;
}

/* A child wrote to this pipe that all went well for it. */
static inline void hear_yes(int end)
{
    char answer = 0;
    CHECK(read(end, &answer, 1) == 1 && answer == 'y');
    close(end);
}

#endif
