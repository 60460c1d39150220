"""The machine and the software that a benchmark ran on."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

GIB = 1 << 30


def description() -> dict[str, str | int | float]:
    """This machine: processor, cores, memory, kernel, Python, SQLite, and its current load."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load_1min_before": round(os.getloadavg()[0], 2),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of installed distributions."""
    return {package: version(package) for package in packages}


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
