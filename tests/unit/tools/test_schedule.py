"""Which tests run together on one worker, and which begin first."""

from __future__ import annotations

import pytest

from tests.schedule import group_of, urgency_of


@pytest.mark.parametrize(
    ("nodeid", "group", "urgency"),
    [
        ("tests/e2e/test_lake.py::test_views[spark-4.3]", "spark-4.3", 1),
        ("tests/e2e/lake_spark/test_writing.py::test_files[spark-3.5-False-true]", "spark-3.5", 1),
        ("tests/e2e/test_demo.py::test_every_check_of_the_demo_passes", "tests/e2e/test_demo.py", 0),
        ("tests/unit/host/test_cores.py::test_all[two-spark-4.3]", "tests/unit/host/test_cores.py", 2),
        ("tests/unit/hms/test_versions.py::test_client[spark-4.3]", "tests/unit/hms/test_versions.py", 2),
        ("tests/fault/test_kv_kill.py::test_kill", "tests/fault/test_kv_kill.py", 2),
    ],
)
def test_groups(nodeid: str, group: str, urgency: int) -> None:
    assert (group_of(nodeid), urgency_of(nodeid)) == (group, urgency)
