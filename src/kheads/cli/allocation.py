"""Keeps freed memory with the process, so that a training step does not fetch it anew from the system.

glibc takes large blocks straight from the system and hands them back when they are freed. A training step makes and
frees hundreds of megabytes of them, and each comes back as pages that the system has to fill with zeros first.
benchmarks/README.md says what that costs. The price of keeping them is memory that stays taken between steps.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# The numbers that glibc's malloc.h gives M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, and the variables that say the same to
# a process when it starts.
SETTINGS = {"MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1}
VALUES = (2**31 - 1, 32 * 2**20)  # the largest C int, and the most that older versions of glibc take


def keep_freed_memory() -> bool:
    """Asks glibc to keep what is freed, in this process and in those it starts; says whether it does.

    Does nothing with another C library or on another system, and leaves alone what the user has set in the environment.
    """
    if not _is_glibc() or _is_set():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    accepted = {name: _accepted(mallopt, number) for name, number in SETTINGS.items()}
    os.environ.update({name: str(value) for name, value in accepted.items() if value})
    return all(accepted.values())


def _accepted(mallopt: Callable[[int, int], int], number: int) -> int:
    """The largest value that could be set; 0 if none."""
    return next((value for value in VALUES if mallopt(number, value)), 0)


def _is_set() -> bool:
    return "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or not SETTINGS.keys().isdisjoint(os.environ)


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows has no confstr, and other C libraries not this name
        return False
