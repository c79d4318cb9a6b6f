/* Multicast objects: what is bound to them they hold, in one process and in several. */
#include "check.h"

#include <sys/socket.h>

#define MIB (1ull << 20)

typedef unsigned long long Handle;
typedef struct { unsigned devices; size_t size; unsigned long long types, flags; } Team;
typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *windows; unsigned char flags[8]; } Properties;
CUresult cuMulticastCreate(Handle *, const Team *);
CUresult cuMulticastAddDevice(Handle, CUdevice);
CUresult cuMulticastBindMem(Handle, size_t, Handle, size_t, size_t, unsigned long long);
CUresult cuMulticastBindMem_v2(Handle, CUdevice, size_t, Handle, size_t, size_t, unsigned long long);
CUresult cuMulticastBindAddr(Handle, size_t, CUdeviceptr, size_t, unsigned long long);
CUresult cuMulticastUnbind(Handle, CUdevice, size_t, size_t);
CUresult cuMulticastGetGranularity(size_t *, const Team *, int);
CUresult cuMemCreate(Handle *, size_t, const Properties *, unsigned long long);
CUresult cuMemRelease(Handle);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, Handle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemExportToShareableHandle(void *, Handle, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(Handle *, void *, int);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);

enum { MULTICAST_SUPPORTED = 132 };

/* Cards of Hopper's generation, each on the switch. */
static void fresh_switched_machine(const char *settings)
{
    fresh_machine(settings);
    struct machine_state *m = pumice_machine_state();
    for (unsigned i = 0; i < m->cards; i++) {
        m->card[i].cc_major = 9;
        for (unsigned l = 0; l < m->card[i].link_count; l++)
            m->card[i].links[l].remote_card = MACHINE_NONE;
    }
}

static Handle physical(CUdevice device, size_t bytes, int handles)
{
    Handle handle;
    Properties p = {.type = 1, .handles = handles, .location = {1, device}};
    OK(cuMemCreate(&handle, bytes, &p, 0));
    return handle;
}

static uint64_t taken(unsigned card)
{
    return pumice_machine_state()->card[card].lanes[0].used_bytes;
}

static Handle team_of(unsigned devices, size_t bytes, unsigned long long types)
{
    Handle team;
    Team wish = {devices, bytes, types, 0};
    OK(cuMulticastCreate(&team, &wish));
    return team;
}

static void only_cards_on_a_switch_from_hopper_on_have_it(void)
{
    fresh_machine("cards=2");
    OK(cuInit(0));
    int supported;
    Handle team;
    Team wish = {2, 4 * MIB, 0, 0};
    struct machine_card *card = &pumice_machine_state()->card[0];
    OK(cuDeviceGetAttribute(&supported, MULTICAST_SUPPORTED, 0));
    EQUAL(supported, 0);
    EQUAL(cuMulticastCreate(&team, &wish), 801);
    card->cc_major = 9; /* two cards with links to each other */
    EQUAL(cuMulticastCreate(&team, &wish), 801);
    card->links[0].remote_card = MACHINE_NONE;
    OK(cuDeviceGetAttribute(&supported, MULTICAST_SUPPORTED, 0));
    EQUAL(supported, 1);
    OK(cuMulticastCreate(&team, &wish));
    OK(cuMulticastAddDevice(team, 0));
    EQUAL(cuMulticastAddDevice(team, 1), 801);
    EQUAL(cuMulticastAddDevice(team, 2), 101);
    OK(cuMemRelease(team));
    drop_machine();
}

static void what_is_bound_lives_as_long_as_the_binding(void)
{
    fresh_switched_machine("cards=2 context_mib=300");
    OK(cuInit(0));
    Handle team = team_of(2, 8 * MIB, 0), one = physical(0, 4 * MIB, 0), other = physical(1, 8 * MIB, 0);
    EQUAL(taken(0), 4 * MIB); /* the object takes nothing */
    OK(cuMulticastAddDevice(team, 0));
    EQUAL(cuMulticastAddDevice(team, 0), 1);
    OK(cuMulticastAddDevice(team, 1));
    OK(cuMulticastBindMem(team, 0, one, 0, 4 * MIB, 0));
    OK(cuMulticastBindMem_v2(team, 1, 0, other, 4 * MIB, 4 * MIB, 0));
    EQUAL(cuMulticastBindMem(team, 2 * MIB, one, 0, 4 * MIB, 0), 1);        /* there is something */
    EQUAL(cuMulticastBindMem(team, 6 * MIB, one, 0, 4 * MIB, 0), 1);        /* beyond the object */
    EQUAL(cuMulticastBindMem(team, 4 * MIB, one, 2 * MIB, 4 * MIB, 0), 1);  /* beyond the memory */
    EQUAL(cuMulticastBindMem(team, 4 * MIB + 1, one, 0, 2 * MIB, 0), 1);
    EQUAL(cuMulticastBindMem_v2(team, 0, 4 * MIB, other, 0, 4 * MIB, 0), 1); /* of another card */
    EQUAL(cuMulticastBindMem(team, 0, team, 0, 4 * MIB, 0), 1);
    EQUAL(cuMulticastUnbind(team, 0, 0, 2 * MIB), 1);
    OK(cuMemRelease(one));
    OK(cuMemRelease(other));
    EQUAL(taken(0), 4 * MIB);
    EQUAL(taken(1), 8 * MIB);
    OK(cuMulticastUnbind(team, 0, 0, 4 * MIB));
    EQUAL(taken(0), 0);
    OK(cuMemRelease(team)); /* the other goes with the object */
    EQUAL(taken(1), 0);
    EQUAL(cuMulticastUnbind(team, 1, 0, 4 * MIB), 1);
    drop_machine();
}

static void a_mapping_keeps_the_object_and_what_is_bound_to_it(void)
{
    fresh_switched_machine("context_mib=300 cards=2");
    CUcontext context = begin(0);
    uint64_t before = taken(0);
    CUdeviceptr at, wide;
    size_t granularity;
    OK(cuMulticastGetGranularity(&granularity, &(Team){1, 4 * MIB, 0, 0}, 1));
    EQUAL(granularity, 2 * MIB);
    Handle team = team_of(1, 4 * MIB, 0), memory = physical(0, 4 * MIB, 0);
    OK(cuMulticastAddDevice(team, 0));
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemAddressReserve(&wide, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(wide, 4 * MIB, 0, memory, 0));
    OK(cuMemRelease(memory));
    OK(cuMulticastBindAddr(team, 0, wide, 4 * MIB, 0));
    EQUAL(cuMulticastBindAddr(team, 0, at, 4 * MIB, 0), 1);
    OK(cuMemUnmap(wide, 4 * MIB));
    EQUAL(taken(0) - before, 4 * MIB);
    OK(cuMemMap(at, 4 * MIB, 0, team, 0));
    OK(cuMemRelease(team));
    EQUAL(taken(0) - before, 4 * MIB);
    char byte = 1;
    EQUAL(cuMemcpyHtoD_v2(at, &byte, 1), 1); /* kernels write through it, nobody else */
    OK(cuMemUnmap(at, 4 * MIB));
    EQUAL(taken(0), before);
    OK(cuCtxDestroy_v2(context));
    drop_machine();
}

static void send_descriptor(int to, int fd)
{
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 'd';
    struct iovec io = {&byte, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(to, &m, 0) == 1);
}

static int receive_descriptor(int from)
{
    int fd;
    char room[CMSG_SPACE(sizeof fd)], byte;
    struct iovec io = {&byte, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK(recvmsg(from, &m, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* Binding waits until both processes have added their card. */
static void a_team_of_two_processes_has_a_card_each(void)
{
    fresh_switched_machine("cards=2 context_mib=300");
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    if (child() == 0) {
        OK(cuInit(0));
        Handle team, memory = physical(1, 4 * MIB, 1), plain = physical(1, 4 * MIB, 0);
        int fd = receive_descriptor(pair[1]);
        OK(cuMemImportFromShareableHandle(&team, (void *)(long)fd, 1));
        CHECK(write(pair[1], "i", 1) == 1 && read(pair[1], &byte, 1) == 1);
        OK(cuMulticastAddDevice(team, 1));
        OK(cuMulticastBindMem(team, 0, memory, 0, 4 * MIB, 0));
        EQUAL(cuMulticastBindMem(team, 4 * MIB, plain, 0, 4 * MIB, 0), 1); /* nobody else could hold it */
        OK(cuMemRelease(memory));
        CHECK(write(pair[1], "b", 1) == 1 && read(pair[1], &byte, 1) == 1);
        exit(0); /* and lets go what it bound */
    }
    OK(cuInit(0));
    Handle team = team_of(2, 8 * MIB, 1), memory = physical(0, 4 * MIB, 1);
    int fd;
    OK(cuMemExportToShareableHandle(&fd, team, 1, 0));
    OK(cuMulticastAddDevice(team, 0));
    send_descriptor(pair[0], fd);
    CHECK(read(pair[0], &byte, 1) == 1 && write(pair[0], "g", 1) == 1);
    OK(cuMulticastBindMem(team, 0, memory, 0, 4 * MIB, 0)); /* returns, so the other card is there */
    CHECK(read(pair[0], &byte, 1) == 1);
    EQUAL(cuMulticastUnbind(team, 1, 0, 4 * MIB), 1); /* the other process's */
    EQUAL(taken(1), 8 * MIB);
    CHECK(write(pair[0], "e", 1) == 1);
    children_end(1);
    pumice_machine_reap(NULL);
    EQUAL(taken(1), 0);
    EQUAL(taken(0), 4 * MIB);
    Handle unshared = team_of(1, 4 * MIB, 0);
    EQUAL(cuMemExportToShareableHandle(&fd, unshared, 1, 0), 1);
    drop_machine();
}

int main(void)
{
    apart(only_cards_on_a_switch_from_hopper_on_have_it);
    apart(what_is_bound_lives_as_long_as_the_binding);
    apart(a_mapping_keeps_the_object_and_what_is_bound_to_it);
    apart(a_team_of_two_processes_has_a_card_each);
    return 0;
}
