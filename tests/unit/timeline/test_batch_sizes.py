"""How large the transactions of a table's writers become, whatever they bring."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lakemark_core.errors import LimitExceeded
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import Transaction
from lakemark_server.timeline.jobs.batcher import BATCH_MAX
from lakemark_server.timeline.jobs.batches import BATCH_BYTES_MAX
from lakemark_server.timeline.jobs.commit import CommitJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import METADATA_BYTES_MAX, CommitDraft
from tests.lakes import Lake, file, files

WAIT_S = 30
LARGE = {"why": "x" * (METADATA_BYTES_MAX - 20)}


@pytest.fixture
def sizes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every transaction from now on."""
    found: list[int] = []
    plain = lake.store.transact

    def measured(body: Callable[[Transaction], Any], **options: Any) -> Any:
        def measuring(tx: Transaction) -> Any:
            answer = body(tx)
            found.append(tx.size_bytes)
            return answer

        return plain(measuring, **options)

    monkeypatch.setattr(lake.store, "transact", measured)
    return found


def opened_in_one_queue(lake: Lake, table_id: int, jobs: list[OpenJob]) -> list[int]:
    """The instants of jobs that all wait when the leader collects them."""
    batcher = lake.timeline._batches
    run, all_wait = batcher._run, threading.Event()
    answers: dict[int, Any] = {}
    done = threading.Semaphore(0)

    def held(key: Any, some: Any) -> Any:
        assert all_wait.wait(WAIT_S)
        return run(key, some)

    batcher._run = held
    for place, job in enumerate(jobs):

        def answered(answer: Any, place: int = place) -> None:
            answers[place] = answer
            done.release()

        batcher.hand_in(table_id, job, answered)
    all_wait.set()
    for _ in jobs:
        assert done.acquire(timeout=WAIT_S)
    batcher._run = run
    return [answers[place].record.instant for place in range(len(jobs))]


def committed_as_one_batch(lake: Lake, table: LakeTable, instants: list[int], sizes: list[int]) -> list[Any]:
    jobs: list[Any] = [
        CommitJob(lake.timeline._preparation.commit(table, CommitDraft(one, files(file(one, "a")))))  # type: ignore[arg-type]
        for one in instants
    ]
    sizes.clear()
    return list(lake.timeline._batches._run(table.table_id, jobs))


def test_openings_with_much_metadata_and_their_commits(lake: Lake, sizes: list[int]) -> None:
    table = lake.table()
    jobs = [
        OpenJob(t.APPEND, metadata=LARGE, profile=t.WorkProfile(), request_id=f"open {number}")
        for number in range(BATCH_MAX)
    ]
    sizes.clear()
    instants = opened_in_one_queue(lake, table.table_id, jobs)
    assert len(set(instants)) == BATCH_MAX
    assert max(sizes) <= BATCH_BYTES_MAX
    assert sum(sizes) > 4 * BATCH_BYTES_MAX
    assert sum(job.size_bytes for job in jobs) == pytest.approx(sum(sizes), rel=0.1), (
        "so that few batches are found too large"
    )

    answers = committed_as_one_batch(lake, table, instants, sizes)
    assert [answer.version for answer in answers] == list(range(1, BATCH_MAX + 1))
    assert max(sizes) <= BATCH_BYTES_MAX
    assert sum(sizes) > 4 * BATCH_BYTES_MAX


def test_small_commits_stay_in_one_transaction(lake: Lake, sizes: list[int]) -> None:
    table = lake.table()
    jobs = [OpenJob(t.APPEND, profile=t.WorkProfile())] * BATCH_MAX
    instants = opened_in_one_queue(lake, table.table_id, jobs)
    answers = committed_as_one_batch(lake, table, instants, sizes)
    assert [answer.version for answer in answers] == list(range(1, BATCH_MAX + 1))
    assert len(sizes) == 1


def test_a_transaction_over_several_tables_counts_what_was_given_at_opening(lake: Lake) -> None:
    table = lake.table()
    instants = [
        lake.timeline.open(table.table_id, OpenJob(t.APPEND, metadata=LARGE, profile=t.WorkProfile())).record.instant
        for _ in range(30)
    ]
    commits = [(table, CommitDraft(one, files(file(one, "a")))) for one in instants]
    with pytest.raises(LimitExceeded, match="shorten their metadata"):
        lake.timeline.commit_together(commits)
    assert lake.paths(table) == []
    assert len(lake.timeline.commit_together(commits[:10])) == 10
