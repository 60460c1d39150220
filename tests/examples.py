"""How many examples a property test tries: few in the default suite, more if somebody has the time for it."""

from __future__ import annotations

import os

_TIMES = int(os.environ.get("LAKEMARK_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """``count``, times LAKEMARK_TEST_EXAMPLES."""
    return count * _TIMES
