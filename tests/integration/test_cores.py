"""On which cores the threads of a real service run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.service import running_service

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose from"
)


def cores_of(pid: int) -> set[int]:
    """Of all threads together."""
    return set.union(*(os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()))


@contextmanager
def held_to(core: int) -> Iterator[None]:
    """This thread, and the processes that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_two_services_hold_all_their_threads_to_a_core_each(tmp_path: Path) -> None:
    with (
        running_service(tmp_path / "one", hms=True) as one,
        running_service(tmp_path / "two", hms=False) as two,
    ):
        found = cores_of(one.pid), cores_of(two.pid)
    assert [len(cores) for cores in found] == [1, 1]
    assert found[0] != found[1]


def test_all_cores_are_used_if_the_settings_say_so(tmp_path: Path) -> None:
    with running_service(tmp_path, hms=False, settings={"LAKEMARK_CORES": "all"}) as service:
        assert cores_of(service.pid) == os.sched_getaffinity(0)


def test_a_process_that_may_use_one_core_only_stays_there(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    with held_to(core), running_service(tmp_path, hms=False) as service:
        assert cores_of(service.pid) == {core}
