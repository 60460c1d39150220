"""Answers that are recorded under request ids: their bytes are those of the responses that older releases recorded."""

from __future__ import annotations

from lakemark_proto.store.v1.store_pb2 import CommittedRecord, CommittedTogetherRecord, MergedRecord
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.publication.commits import Committed

COMMITTED = Committed(version=7, instant=1_800_000_000_000, committed_ms=1_800_000_000_321, rebased_over=3)
RESPONSE = t.CommitResponse(**COMMITTED._asdict())


def test_an_answer_that_was_recorded_as_a_response_is_read() -> None:
    stored = RESPONSE.SerializeToString()
    assert Committed.of_record(CommittedRecord.FromString(stored)) == COMMITTED
    assert COMMITTED.to_record().SerializeToString() == stored


def test_so_is_the_answer_of_a_transaction() -> None:
    stored = t.CommitTransactionResponse(commits=[RESPONSE, RESPONSE]).SerializeToString()
    records = CommittedTogetherRecord.FromString(stored).commits
    assert [Committed.of_record(record) for record in records] == [COMMITTED, COMMITTED]
    assert CommittedTogetherRecord(commits=[COMMITTED.to_record()] * 2).SerializeToString() == stored


def test_so_is_the_answer_of_a_merge() -> None:
    stored = c.MergeBranchResponse(version=9, replayed=4, fast_forward=True).SerializeToString()
    assert MergedRecord(version=9, replayed=4, fast_forward=True).SerializeToString() == stored
