"""Structures of the driver API that several of the scripts of this folder fill in."""

import ctypes as c

size_t, u64, ptr = c.c_size_t, c.c_uint64, c.c_void_p


class Array(c.Structure):
    _fields_ = [("width", size_t), ("height", size_t), ("format", c.c_int), ("channels", c.c_uint)]


class Array3D(c.Structure):
    _fields_ = [*((axis, size_t) for axis in "whd"), ("format", c.c_int), ("channels", c.c_uint), ("flags", c.c_uint)]


class Prop(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("location", c.c_int * 2), ("win32", ptr), ("flags", u64)]


class PoolProps(c.Structure):
    _fields_ = [
        ("type", c.c_int),
        ("handles", c.c_int),
        ("location", c.c_int * 2),
        ("security", ptr),
        ("max", size_t),
        ("usage", c.c_ushort),
        ("reserved", c.c_ubyte * 54),
    ]


class Team(c.Structure):
    """The properties of a multicast object."""

    _fields_ = [("devices", c.c_uint), ("size", size_t), ("handles", u64), ("flags", u64)]


class Bytes(c.Structure):
    """A handle of memory for other processes, or whatever else is not looked into."""

    _fields_ = [("bytes", c.c_ubyte * 64)]
