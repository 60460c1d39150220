"""How much a test does: little in the default suite, more in the slow one, and as much as somebody has the time for.

* ``LAKEMARK_TEST_EXAMPLES`` multiplies what property tests of the default suite try (1).
* ``LAKEMARK_TEST_LENGTH`` multiplies the long runs of the slow suite (1), and the time they may take. docs/proofs.md
  says how long the whole suite took as it is.
* ``LAKEMARK_TEST_SEED`` is the seed of the long runs that have a single one.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

_EXAMPLES: Final = int(os.environ.get("LAKEMARK_TEST_EXAMPLES", "1"))
_LENGTH: Final = int(os.environ.get("LAKEMARK_TEST_LENGTH", "1"))


def examples(count: int) -> int:
    """``count``, times LAKEMARK_TEST_EXAMPLES."""
    return count * _EXAMPLES


def long(amount: int) -> int:
    """``amount`` of steps, kills, seeds or seconds, times LAKEMARK_TEST_LENGTH."""
    return amount * _LENGTH


def seed(usual: int) -> int:
    """``usual``, or LAKEMARK_TEST_SEED."""
    return int(os.environ.get("LAKEMARK_TEST_SEED", usual))


def slow(limit_s: int) -> list[pytest.MarkDecorator]:
    """Marks of a run whose amount is :func:`long`. It may take ``limit_s`` seconds, times LAKEMARK_TEST_LENGTH."""
    return [pytest.mark.slow, pytest.mark.timeout(long(limit_s))]
