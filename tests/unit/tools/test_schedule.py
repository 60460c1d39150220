"""Which tests run together on one worker, and which begin first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schedule import APART, END_TO_END, WITH_SHARED, group_of, urgency_of

(LONG,) = APART


@pytest.mark.parametrize(
    ("nodeid", "group", "urgency"),
    [
        ("tests/e2e/test_lake.py::test_views[spark-4.3]", "spark-4.3", 0),
        ("tests/e2e/lake_spark/test_writing.py::test_files[spark-3.5-False-true]", "spark-3.5", 2),
        ("tests/e2e/test_keyed_model.py::test_tables[merged]", "spark-4.3", 0),
        (f"{LONG}[merged-2]", LONG, 1),
        ("tests/e2e/test_demo.py::test_every_check_of_the_demo_passes", "tests/e2e/test_demo.py", 1),
        ("tests/unit/host/test_cores.py::test_all[two-spark-4.3]", "tests/unit/host/test_cores.py", 3),
        ("tests/unit/hms/test_versions.py::test_client[spark-4.3]", "tests/unit/hms/test_versions.py", 3),
        ("tests/fault/test_kv_kill.py::test_kill", "tests/fault/test_kv_kill.py", 3),
    ],
)
def test_groups(nodeid: str, group: str, urgency: int) -> None:
    assert (group_of(nodeid), urgency_of(nodeid)) == (group, urgency)


def test_the_files_that_share_a_spark_are_known() -> None:
    repository = Path(__file__).parents[3]
    asking = {
        str(file.relative_to(repository))
        for file in (repository / END_TO_END).glob("test_*.py")
        if any(text in file.read_text() for text in ('start_spark("4.3"', "hive23_uri: str"))
    }
    assert asking == WITH_SHARED
