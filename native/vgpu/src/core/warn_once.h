/*
 * What is wrong with a container's configuration is said once in the container, not by each of its processes.
 *
 * The region keeps, by subject, a hash of the last complaint: whoever puts another one there writes the line, the others have
 * it at the information level. Where no region is shared each process says it for itself.
 */
#ifndef VGPU_WARN_ONCE_H
#define VGPU_WARN_ONCE_H

#include "core/region_map.h"

enum warning_subject {
    WARN_BAD_VARIABLE,  /* a limit that is none */
    WARN_OTHER_LIMIT,   /* the environment asks for another limit than the region has held from the beginning */
    WARN_ABOVE_CARD,    /* a limit above the card's memory */
    WARN_NO_OWN_LIMIT,  /* more devices than limits */
    WARN_TOO_MANY,      /* more devices than the region has room for */
};

void warn_once(const struct region_map *map, int level, enum warning_subject subject, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

#endif
