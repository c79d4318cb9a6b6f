#define _GNU_SOURCE
#include "cuda.h"
#include "objects.h"
bool capture_active(struct stream *s) { (void)s; return false; }
CUresult capture_kernel(struct stream *s, const CUDA_KERNEL_NODE_PARAMS *p) { (void)s, (void)p; return 801; }
CUresult capture_work(struct stream *s, int type, uint64_t ns) { (void)s, (void)type, (void)ns; return 801; }
CUresult capture_forbids(void) { return 0; }
CUresult capture_join(struct stream *s, CUevent e) { (void)s, (void)e; return 801; }
CUresult pool_free_now(uint64_t a) { (void)a; return 1; }
