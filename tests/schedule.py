"""Distributes the tests over several workers (``scripts/test``, pytest-xdist).

The tests of a file stay together, because they share fixtures. The end-to-end tests stay together by Spark version: a
JVM needs half a minute of processor time to warm up, so each version has one worker. These groups take by far the
longest, so they begin early and other files fill up the rest: Spark 4.3 on one worker, and on the other one the files
that start Sparks of their own and then Spark 3.5, which together take about as long.
"""

from __future__ import annotations

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

END_TO_END: Final = "tests/e2e/"
_VERSION: Final = re.compile(r"\[(spark-\d+\.\d+)")
WITH_SHARED: Final = frozenset(
    f"{END_TO_END}test_{name}.py"
    for name in ("harness", "hive_answers", "keyed_docs", "keyed_model", "listener", "migration", "readme")
)
"""Files that take the shared Spark 4.3, or Hive's metastore beside it, whatever the version of a test."""
APART: Final = frozenset({f"{END_TO_END}test_keyed_model.py::test_tables_are_what_their_changes_say_for_long"})
"""Slow tests that take longer than all others with their Spark: they have a worker, and a Spark, of their own."""
_FIRST: Final = "spark-4.3"


def group_of(nodeid: str) -> str:
    """The name of the test's group. One worker runs all tests of a group, one after another."""
    file, test = nodeid.partition("::")[0], nodeid.partition("[")[0]
    if test in APART:
        return test
    version = _VERSION.search(nodeid) if file.startswith(END_TO_END) else None
    if version is None and file in WITH_SHARED:
        return _FIRST
    return version[1] if version else file


def urgency_of(nodeid: str) -> int:
    """Groups with a lower number begin earlier."""
    if not nodeid.startswith(END_TO_END):
        return 3
    group = group_of(nodeid)
    if group == _FIRST:
        return 0
    return 1 if group.startswith(END_TO_END) else 2


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order in which their first tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
