"""How the process gets its memory from the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ALLOCATING = """
import ctypes, sys, threading
from lakemark_server.host import memory

if sys.argv[1] == "configured":
    memory.configure()
threads = 6
there, over = threading.Barrier(threads + 1), threading.Event()

def allocate():
    kept = [bytearray(5_000) for _ in range(100)]
    there.wait()
    over.wait()

started = [threading.Thread(target=allocate) for _ in range(threads)]
for thread in started:
    thread.start()
there.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
over.set()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_threads_share_few_arenas() -> None:
    def arenas(how: str) -> int:
        told = subprocess.run(
            [sys.executable, "-c", ALLOCATING, how], capture_output=True, text=True, check=True
        ).stdout
        return told.count("<heap nr=")

    assert arenas("configured") == 2
    assert arenas("as it is") > 2
