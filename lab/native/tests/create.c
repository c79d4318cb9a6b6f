/* A machine with plain defaults, for the tests of this directory: create DIR [key=value …].
 * Keys: cards, memory_mib, virtual, cuda, context_mib, slice_us, depth, overlap, mig (0, 1: capable, 2: on), copy (bytes per µs),
 * kernel_ns. The Python side makes real models; this one only fills the layout. */
#define _GNU_SOURCE
#include <machine/state.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t setting(int argc, char **argv, const char *key, uint64_t otherwise)
{
    size_t n = strlen(key);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], key, n) == 0 && argv[i][n] == '=')
            return strtoull(argv[i] + n + 1, NULL, 0);
    return otherwise;
}

static void profile(struct machine_card *c, const char *name, uint32_t number, uint32_t id, uint32_t slices, uint32_t count,
                    uint64_t mib, const int *starts, uint32_t size)
{
    struct machine_profile *p = &c->profiles[c->profile_count++];
    strcpy(p->name, name);
    p->number = number;
    p->id = id;
    p->slices = slices;
    p->max_count = count;
    p->memory_mib = mib;
    p->sm_count = 14 * slices;
    p->copy_engines = slices;
    for (; starts[p->placement_count] >= 0; p->placement_count++)
        p->placements[p->placement_count] = (struct machine_placement){(uint32_t)starts[p->placement_count], size};
}

static void a100_profiles(struct machine_card *c)
{
    profile(c, "1g.5gb", 0, 19, 1, 7, 4864, (int[]){0, 1, 2, 3, 4, 5, 6, -1}, 1);
    profile(c, "1g.5gb+me", 7, 20, 1, 1, 4864, (int[]){0, 1, 2, 3, 4, 5, 6, -1}, 1);
    profile(c, "1g.10gb", 9, 15, 1, 4, 9856, (int[]){0, 2, 4, 6, -1}, 2);
    profile(c, "2g.10gb", 1, 14, 2, 3, 9856, (int[]){0, 2, 4, -1}, 2);
    profile(c, "3g.20gb", 2, 9, 3, 2, 19968, (int[]){0, 4, -1}, 4);
    profile(c, "4g.20gb", 3, 5, 4, 1, 19968, (int[]){0, -1}, 4);
    profile(c, "7g.40gb", 4, 0, 7, 1, 40192, (int[]){0, -1}, 8);
}

static void card(struct machine_state *m, unsigned i, int argc, char **argv)
{
    struct machine_card *c = &m->card[i];
    strcpy(c->name, "NVIDIA A100-SXM4-40GB");
    snprintf(c->uuid, sizeof c->uuid, "GPU-%08x-1111-2222-3333-444444444444", i + 0xabc0);
    snprintf(c->bus_id, sizeof c->bus_id, "00000000:%02X:00.0", i + 7);
    snprintf(c->serial, sizeof c->serial, "156%07u", i);
    strcpy(c->vbios, "92.00.45.00.03");
    strcpy(c->cpu_affinity, "0-1");
    c->pci_bus = i + 7;
    c->pci_device_id = 0x20b010de;
    c->minor = i;
    c->numa_node = 0;
    c->memory_bytes = setting(argc, argv, "memory_mib", 40960) << 20;
    c->reserved_bytes = setting(argc, argv, "reserved_mib", 0) << 20;
    c->bar1_bytes = 65536ull << 20;
    c->context_bytes = setting(argc, argv, "context_mib", 300) << 20;
    c->sm_count = 108, c->threads_per_sm = 2048, c->warp_size = 32, c->l2_bytes = 40 << 20;
    c->shared_per_block = 49152, c->shared_per_sm = 167936, c->regs_per_sm = 65536, c->memory_bus_bits = 5120;
    c->cc_major = (uint32_t)setting(argc, argv, "cc_major", 8), c->architecture = 7;
    c->clock_sm_mhz = c->clock_sm_max_mhz = 1410, c->clock_mem_mhz = c->clock_mem_max_mhz = 1215;
    c->power_idle_mw = 55000, c->power_max_mw = c->power_limit_mw = 400000;
    c->temperature_c = 30;
    c->fan_percent = MACHINE_NONE;
    c->ecc_capable = c->ecc_mode = 1;
    c->ipc_capable = c->managed_capable = c->pool_capable = c->vmm_capable = 1;
    for (unsigned j = 0; j < MACHINE_CARDS; j++)
        c->topology[j] = j == i ? 0 : 40;
    uint64_t mig = setting(argc, argv, "mig", 1);
    c->mig_capable = mig > 0;
    c->mig_mode = c->mig_pending = mig > 1;
    c->mig_slices = 8, c->mig_compute_slices = 7;
    if (mig)
        a100_profiles(c);
    if (m->cards > 1)
        for (unsigned l = 0; l < 12; l++)
            c->links[l] = (struct machine_link){.remote_card = (i + 1 + l % (m->cards - 1)) % m->cards, .version = 3, .up = 1, .remote_link = l};
    c->link_count = m->cards > 1 ? 12 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: create DIR [key=value ...]\n"), 2;
    char path[4096], temporary[4096];
    snprintf(path, sizeof path, "%.4000s/state", argv[1]);
    snprintf(temporary, sizeof temporary, "%.4000s/state.new", argv[1]);
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST)
        return perror(argv[1]), 1;
    int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)MACHINE_SIZE) != 0)
        return perror(temporary), 1;
    struct machine_state *m = mmap(NULL, MACHINE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED)
        return perror("mmap"), 1;
    m->version = MACHINE_VERSION;
    m->size = MACHINE_SIZE;
    m->cards = (uint32_t)setting(argc, argv, "cards", 1);
    strcpy(m->driver_version, "535.104.05");
    strcpy(m->nvml_version, "12.535.104.05");
    m->cuda_version = (uint32_t)setting(argc, argv, "cuda", 12020);
    m->clock.mode = (uint32_t)setting(argc, argv, "virtual", 0);
    m->clock.virtual_ns = 1000000000ull;
    m->slice_ns = setting(argc, argv, "slice_us", 0) * 1000;
    m->kernel_ns = setting(argc, argv, "kernel_ns", 0);
    m->queue_depth = (uint32_t)setting(argc, argv, "depth", 0);
    m->overlap = (uint32_t)setting(argc, argv, "overlap", 0);
    m->copy_bytes_per_us = setting(argc, argv, "copy", 0);
    for (unsigned i = 0; i < m->cards && i < MACHINE_CARDS; i++)
        card(m, i, argc, argv);
    m->magic = MACHINE_MAGIC;
    if (rename(temporary, path) != 0)
        return perror(path), 1;
    return 0;
}
