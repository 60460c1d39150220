"""Python programs in the environment that has other engines (DuckDB, Polars, Dask …), on this checkout's client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from benchmarks.peers import environment

ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ("build/generated", "clients", "core", ".")


def interpreter() -> Path:
    """The interpreter of that environment, which the first call installs."""
    return environment.interpreter("engines")


def variables() -> dict[str, str]:
    """The environment variables by which its programs find the client, and the modules of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / package) for package in _PACKAGES)}
