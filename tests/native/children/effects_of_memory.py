"""The accounting of allocations, pools, and physical memory with its mappings."""

import ctypes as c

from books import BLOCK, used
from driver import alloc, call, cuda, must, ptr, size_t, u64
from structures import Array3D, PoolProps, Prop


def linear(release):
    def steps():
        _, pointer = alloc(BLOCK)
        yield used()
        must(release, u64(pointer), *([None] if release.startswith("cuMemFreeAsync") else []))
        must("cuCtxSynchronize")
        yield used()

    return steps


def told_as_managed(ask):
    """What is asked of a block of device memory, and of one of managed memory."""

    def steps():
        managed = u64()
        must("cuMemAllocManaged", c.byref(managed), size_t(BLOCK), 1)
        for pointer in (alloc(BLOCK)[1], managed.value):
            yield ask(u64(pointer))
            must("cuMemFree_v2", u64(pointer))

    return steps


def attribute(pointer):
    found = c.c_int(-1)
    must("cuPointerGetAttribute", c.byref(found), 8, pointer)
    return found.value


def attributes(pointer):
    found = c.c_int(-1)
    must("cuPointerGetAttributes", 1, c.byref(c.c_int(8)), c.byref(c.pointer(found)), pointer)
    return found.value


def freed_without_a_pointer():  # 32-bit pointers: a 64-bit driver hands none out
    yield cuda.cuMemFree(c.c_uint(0x1000)) != 0
    yield used()


def array(release, mipmapped):
    def steps():
        handle, shape = ptr(), Array3D(16384, 16, 0, 0x20, 1, 0)
        levels = (c.c_uint(1),) if mipmapped else ()
        create = "cuMipmappedArrayCreate" if mipmapped else "cuArray3DCreate_v2"
        must(create, c.byref(handle), c.byref(shape), *levels)
        yield used()
        must(release, handle)
        yield used()

    return steps


def new_pool():
    pool, props = ptr(), PoolProps(type=1, location=(1, 0))
    must("cuMemPoolCreate", c.byref(pool), c.byref(props))
    return pool


def take_and_leave(pool):
    """Leaves the pool with memory reserved that no block uses."""
    must("cuMemPoolSetAttribute", pool, 4, c.byref(u64(2**64 - 1)))  # keep everything
    pointer = u64()
    must("cuMemAllocFromPoolAsync", c.byref(pointer), size_t(BLOCK), pool, None)
    must("cuMemFreeAsync", pointer, None)
    must("cuCtxSynchronize")


def pool_trimmed():
    pool = new_pool()
    take_and_leave(pool)
    yield used()
    must("cuMemPoolTrimTo", pool, size_t(0))
    yield used()
    must("cuMemPoolDestroy", pool)


def pool_destroyed():
    pool = new_pool()
    take_and_leave(pool)
    yield used()
    must("cuMemPoolDestroy", pool)
    yield used()


def pool_of_host_memory():
    """A pool that is made on the host is not charged to the card."""
    pool, props = ptr(), PoolProps(type=1, location=(2, 0))
    if call("cuMemPoolCreate", c.byref(pool), c.byref(props)) == 0:
        pointer = u64()
        must("cuMemAllocFromPoolAsync", c.byref(pointer), size_t(BLOCK), pool, None)
        yield used()
        must("cuMemFreeAsync", pointer, None)
        must("cuMemPoolDestroy", pool)
    else:
        yield 0
    yield used()


def pool_told_to_keep_nothing():
    pool = new_pool()
    take_and_leave(pool)
    must("cuMemPoolSetAttribute", pool, 4, c.byref(u64(0)))
    must("cuMemPoolTrimTo", pool, size_t(0))
    yield used()
    must("cuMemPoolDestroy", pool)


def physical():
    handle, prop = u64(), Prop(type=1, handles=1, location=(1, 0))
    must("cuMemCreate", c.byref(handle), size_t(BLOCK), c.byref(prop), u64(0))
    return handle


def mapped(handle):
    address = u64()
    must("cuMemAddressReserve", c.byref(address), size_t(BLOCK), size_t(0), u64(0), u64(0))
    must("cuMemMap", address, size_t(BLOCK), size_t(0), handle, u64(0))
    return address


def handle_released_before_its_mapping():
    handle = physical()
    address = mapped(handle)
    yield used()
    must("cuMemRelease", handle)
    yield used()
    must("cuMemUnmap", address, size_t(BLOCK))
    yield used()


def handle_released_after_its_mapping():
    handle = physical()
    address = mapped(handle)
    must("cuMemUnmap", address, size_t(BLOCK))
    yield used()
    must("cuMemRelease", handle)
    yield used()
    of_the_host = u64()
    prop = Prop(type=1, location=(2, 0))
    made = call("cuMemCreate", c.byref(of_the_host), size_t(BLOCK), c.byref(prop), u64(0)) == 0
    yield used()
    if made:
        must("cuMemRelease", of_the_host)


def handle_retained():
    handle, again = physical(), u64()
    address = mapped(handle)
    must("cuMemRetainAllocationHandle", c.byref(again), ptr(address.value))
    must("cuMemUnmap", address, size_t(BLOCK))
    must("cuMemRelease", handle)
    yield used()
    must("cuMemRelease", again)
    yield used()
