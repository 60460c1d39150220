"""How many reads a batch of small commits needs: on a store across a network each is a round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.batching.jobs import OpenJob
from lakemark_server.timeline.batching.named import NamedJob, TableKey
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


def run(lake: Lake, requests: Sequence[t.CommitRequest | OpenJob]) -> list[Any]:
    """Runs the jobs as one batch. Returns the answers."""
    table_id = lake.timeline._names.last_id(NAME)
    assert table_id is not None
    found: list[Any] = lake.timeline._batches._run(table_id, [NamedJob(NAME, one) for one in requests])
    return found


def commits(instants: Sequence[int], following: t.OpenInstantRequest | None = None) -> list[t.CommitRequest]:
    return [t.CommitRequest(instant=one, added=files(file(one, "a", 1)), next=following) for one in instants]


def test_reads_of_a_batch(lake: Lake, reads: list[str]) -> None:
    table = lake.table()
    lake.timeline.learn(NAME, table.table_id)
    opening = t.OpenInstantRequest(operation=t.APPEND, start=True)
    opened = run(lake, [OpenJob.of(opening)] * 8)  # what it finds out about the name is known from now on
    instants = [one.record.instant for one in opened]
    reads.clear()
    answers = run(lake, commits(instants, opening))
    assert [answer.response.version for answer in answers] == list(range(1, 9))
    # All at once; the open writers and the tenant's counter of them, once for the eight.
    assert reads == ["get_many", "get_range", "get"]
    reads.clear()
    run(lake, commits([answer.opened.record.instant for answer in answers]))
    assert reads == ["get_many"]
