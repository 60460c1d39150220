"""How the tests are shared out among several workers (``scripts/test``, pytest-xdist).

A file stays together, because what its tests share is made once for the file. The end-to-end tests stay together by
Spark version, whatever file they are in: a JVM takes half a minute of processor time until it is warm, so each version
has one worker. These groups are by far the longest, so they begin early, and other files fill up what is left. Before
them come the files that start Sparks of their own, so that those do not run beside the shared ones.
"""

from __future__ import annotations

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

END_TO_END: Final = "tests/e2e/"
_VERSION: Final = re.compile(r"\[(spark-\d+\.\d+)")


def group_of(nodeid: str) -> str:
    """The name of the group whose tests one worker runs, one after the other."""
    file = nodeid.partition("::")[0]
    version = _VERSION.search(nodeid) if file.startswith(END_TO_END) else None
    return version[1] if version else file


def urgency_of(nodeid: str) -> int:
    """Groups with a lower number begin earlier."""
    if not nodeid.startswith(END_TO_END):
        return 2
    return 0 if group_of(nodeid).startswith(END_TO_END) else 1


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order in which their first tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
