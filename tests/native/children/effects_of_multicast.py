"""The accounting of multicast objects: they take nothing, and hold what is bound to them."""

import ctypes as c

from books import BLOCK, used
from driver import must, size_t, u64
from effects_of_memory import mapped, physical
from structures import Team


def team():
    """An object of card 0 alone, with room for two pieces of memory."""
    made = u64()
    must("cuMulticastCreate", c.byref(made), c.byref(Team(devices=1, size=2 * BLOCK)))
    must("cuMulticastAddDevice", made, 0)
    return made


def ended_with_what_is_bound():
    """Beside its handle a mapping keeps the object."""
    made, memory, address = team(), physical(), u64()
    yield used() - BLOCK
    must("cuMulticastBindMem", made, size_t(BLOCK), memory, size_t(0), size_t(BLOCK), u64(0))
    must("cuMemAddressReserve", c.byref(address), size_t(2 * BLOCK), size_t(0), u64(0), u64(0))
    must("cuMemMap", address, size_t(2 * BLOCK), size_t(0), made, u64(0))
    must("cuMemRelease", memory)
    must("cuMemRelease", made)
    yield used()
    must("cuMemUnmap", address, size_t(2 * BLOCK))
    yield used()
    must("cuMemAddressFree", address, size_t(2 * BLOCK))


def unbound(bind, *device):
    """Two pieces, of which each is given back with its own place in the object."""

    def steps():
        made, places = team(), (size_t(0), size_t(BLOCK))
        for place in places:
            memory = physical()
            must(bind, made, *device, place, memory, size_t(0), size_t(BLOCK), u64(0))
            must("cuMemRelease", memory)
        yield used()
        for place in places:
            must("cuMulticastUnbind", made, 0, place, size_t(BLOCK))
            yield used()
        must("cuMemRelease", made)

    return steps


def unbound_address(bind, *device):
    """Check that memory bound by its address outlives handle and mapping."""

    def steps():
        made, memory = team(), physical()
        address = mapped(memory)
        must(bind, made, *device, size_t(0), address, size_t(BLOCK), u64(0))
        must("cuMemUnmap", address, size_t(BLOCK))
        must("cuMemAddressFree", address, size_t(BLOCK))
        must("cuMemRelease", memory)
        yield used()
        must("cuMulticastUnbind", made, 0, size_t(0), size_t(BLOCK))
        yield used()
        must("cuMemRelease", made)

    return steps
