"""How glibc treats what is freed: given back to the kernel at once, or kept for the next step.

Giving back keeps a process as small as what it uses, and costs page faults, which small models
feel. Keeping holds more than is in use, since the heap gets holes. Measured: a small GPT-2 used
98 MB and held 144 MB; layers that are computed again in the backward used 18 MB and held 63 MB.
With another C library, nothing here does anything.
"""

from __future__ import annotations

import ctypes

#: glibc's options of `mallopt`.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Blocks from this size on leave the process when they are freed.
_THRIFTY_BYTES = 64 << 10
#: The most that glibc takes for that size on 64-bit machines.
_GENEROUS_BYTES = 32 << 20
#: `mallopt` takes an `int`.
_MOST = 2**31 - 1
#: Stack of a thread. The usual 8 MiB count whole, though hardly touched: the dozen threads that
#: gloo and autograd start would take 100 MB of a device's limit.
_STACK_BYTES = 1 << 20
#: Bytes of a `pthread_attr_t`, and more.
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
    """Have what is freed leave the process, from now on."""
    _set({_M_MMAP_THRESHOLD: _THRIFTY_BYTES, _M_TRIM_THRESHOLD: 2 * _THRIFTY_BYTES})


def keep(most_bytes: int) -> None:
    """Keep what is freed for what comes next, up to `most_bytes` at the heap's end."""
    _set({_M_MMAP_THRESHOLD: _GENEROUS_BYTES, _M_TRIM_THRESHOLD: min(most_bytes, _MOST)})


def keep_all() -> None:
    """Keep what is freed for what comes next, but for the largest blocks."""
    keep(_MOST)


def return_freed() -> None:
    """Have memory that was freed leave the process: glibc keeps much of it for later."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def free_bytes() -> int:
    """What the heap holds and nobody uses: addresses alone, once `return_freed` was called.

    0 where the C library can't tell (glibc before 2.33).
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _MallInfo
    return int(libc.mallinfo2().fordblks)


def have_threads_take_little() -> None:
    """Threads that start from now on share one heap, and have small stacks."""
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
