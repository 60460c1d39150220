"""How the process gets its memory from the system."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS: Final = 2


def configure() -> None:
    """To be called before there are other threads."""
    # Else up to eight arenas for each core, by threads that seldom allocate at the same time: each keeps what once
    # was freed in it, and the process grows for half an hour.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
    if "jemalloc" in pa.supported_memory_backends():
        # With many columns that come and go, Arrow's default keeps a fifth more memory than is in use.
        pa.set_memory_pool(pa.jemalloc_memory_pool())
