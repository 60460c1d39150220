"""How many reads a batch of small commits needs: on a store across a network each is a round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.jobs.commit import SmallCommitJob
from lakemark_server.timeline.jobs.job import Job, TableKey
from lakemark_server.timeline.jobs.named import NamedJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.lakes import Lake, file, files

NAME: TableKey = ("", "default", "t")


class Counted:
    """A snapshot that counts its reads."""

    def __init__(self, snapshot: Any, reads: list[str]) -> None:
        self._snapshot, self._reads = snapshot, reads

    def get(self, key: bytes) -> bytes | None:
        self._reads.append("get")
        found: bytes | None = self._snapshot.get(key)
        return found

    def get_many(self, keys: Sequence[bytes]) -> Any:
        self._reads.append("get_many")
        return self._snapshot.get_many(keys)

    def __getattr__(self, name: str) -> Any:
        if name == "get_range":
            self._reads.append(name)
        return getattr(self._snapshot, name)


@pytest.fixture
def reads(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    snapshot = lake.store._snapshot  # type: ignore[attr-defined]
    monkeypatch.setattr(lake.store, "_snapshot", lambda: Counted(snapshot(), found))
    return found


def run(lake: Lake, jobs: Sequence[Job]) -> list[Any]:
    """Runs the jobs as one batch. Returns the answers."""
    names = lake.timeline._names
    table_id = names.last_id(NAME)
    assert table_id is not None
    found: list[Any] = lake.timeline._batches._run(table_id, [NamedJob(NAME, job, names) for job in jobs])
    return found


def commits(instants: Sequence[int], following: OpenJob | None = None) -> list[Job]:
    jobs = [SmallCommitJob.of(CommitDraft(one, files(file(one, "a", 1))), following) for one in instants]
    return [job for job in jobs if job is not None]


def test_reads_of_a_batch(lake: Lake, reads: list[str]) -> None:
    table = lake.table()
    lake.timeline.learn(NAME, table.table_id)
    opening = OpenJob(t.APPEND, profile=t.WorkProfile())
    opened = run(lake, [opening] * 8)  # what it finds out about the name is known from now on
    first, *instants = [one.record.instant for one in opened]
    run(lake, commits([first], opening))  # the epoch of the store's events does not change
    reads.clear()
    answers = run(lake, commits(instants, opening))
    assert [answer.committed.version for answer in answers] == list(range(2, 9))
    # All at once; the open writers and the tenant's counter of them, once for the seven.
    assert reads == ["get_many", "get_range", "get"]
    reads.clear()
    run(lake, commits([answer.opened.record.instant for answer in answers]))
    assert reads == ["get_many"]
