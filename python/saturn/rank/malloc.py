"""What glibc does with freed memory: give it back to the kernel at once, or keep it for later.

Giving back keeps a process as small as the memory it uses, and costs page faults, which slow small
models. Keeping holds more memory than is in use, since the heap gets holes. Measured: a small GPT-2
used 98 MB and held 144 MB; recomputed layers used 18 MB and held 63 MB. With another C library,
nothing here does anything.
"""

from __future__ import annotations

import ctypes

#: Parameters of glibc's `mallopt`.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: When memory is given back: blocks of at least this size leave the process when freed.
_THRIFTY_BYTES = 64 << 10
#: When memory is kept: the largest such threshold that glibc accepts on 64-bit machines.
_GENEROUS_BYTES = 32 << 20
#: The largest value that `mallopt` takes, an `int`.
_MOST = 2**31 - 1
#: The stack of a thread. The limit counts the default of 8 MiB whole, though little of it is used.
#: The dozen threads of gloo and autograd would take 100 MB of a device's limit.
_STACK_BYTES = 1 << 20
#: An upper bound for the size of a `pthread_attr_t`.
_ATTR_BYTES = 256


class _MallInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def give_back() -> None:
    """From now on, let freed memory leave the process."""
    _set({_M_MMAP_THRESHOLD: _THRIFTY_BYTES, _M_TRIM_THRESHOLD: 2 * _THRIFTY_BYTES})


def keep(most_bytes: int) -> None:
    """From now on, keep freed memory for later, up to `most_bytes` at the heap's end."""
    _set({_M_MMAP_THRESHOLD: _GENEROUS_BYTES, _M_TRIM_THRESHOLD: min(most_bytes, _MOST)})


def keep_all() -> None:
    """From now on, keep freed memory for later, except the largest blocks."""
    keep(_MOST)


def return_freed() -> None:
    """Return the memory that glibc has kept after it was freed."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def free_bytes() -> int:
    """Free bytes in the heap; after `return_freed` they are only addresses without memory.

    0 if the C library can't tell (glibc before 2.33).
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _MallInfo
    return int(libc.mallinfo2().fordblks)


def have_threads_take_little() -> None:
    """Let threads that start from now on share one heap and have small stacks."""
    libc = ctypes.CDLL(None)
    try:
        libc.mallopt(_M_ARENA_MAX, 1)
        attributes = ctypes.create_string_buffer(_ATTR_BYTES)
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        libc.pthread_setattr_default_np(attributes)
    except AttributeError:
        return


def _set(options: dict[int, int]) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, value in options.items():
            libc.mallopt(option, value)
