/* What an image says of the device memory that its module will need. */
#ifndef VGPU_IMAGE_NEED_H
#define VGPU_IMAGE_NEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_need {
    uint64_t variables; /* in global memory */
    uint64_t pieces;    /* how many those are; 0: nobody knows, or none */
    uint64_t code;      /* and constants; of PTX: at most about so much, once it is translated */
    bool translated;    /* it is PTX */
    bool known;         /* false: it says nothing */
};

#define IMAGE_SILENT ((struct image_need){.known = false})

#endif
