"""How the process gets its memory from the system."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS: Final = 2


def configure() -> None:
    """Must be called before other threads are started."""
    # The default is up to eight arenas for each core. Each keeps the memory that was freed in it, and since threads
    # seldom allocate at the same time, the process would only grow for half an hour.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
    if "jemalloc" in pa.supported_memory_backends():
        # With many columns that come and go, Arrow's default keeps a fifth more memory than is in use.
        pa.set_memory_pool(pa.jemalloc_memory_pool())
