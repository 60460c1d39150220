"""The partitions of an instant, by name as long as they fit."""

from __future__ import annotations

import pytest

from lakemark_core.errors import LimitExceeded
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.conflicts.partition_list import BYTES_MAX, NAMES_MAX, PartitionList


def names(count: int, first: int = 0) -> list[str]:
    return [f"m={number:05}" for number in range(first, first + count)]


def test_round_trip_and_union() -> None:
    record = InstantRecord(operation=t.OVERWRITE_PARTITIONS, partitions=["m=2"])
    one = PartitionList.of(record)
    one.add(["m=1", "m=2"])
    one.write_to(record)
    assert list(record.partitions) == ["m=1", "m=2"]
    assert not record.all_partitions


@pytest.mark.parametrize("operation", [t.APPEND, t.OVERWRITE_TABLE])
def test_too_many_become_all(operation: Operation) -> None:
    one = PartitionList(operation, names(NAMES_MAX), all_partitions=False)
    assert not one.all_partitions
    one.add(["m=x"])
    assert one.all_partitions
    assert one.names == []
    one.add(["m=y"])
    assert one.names == [], "what is everything stays everything"


def test_an_overwrite_has_to_know_what_it_replaces() -> None:
    one = PartitionList(t.OVERWRITE_PARTITIONS, names(NAMES_MAX), all_partitions=False)
    with pytest.raises(LimitExceeded, match="at most 1000 partitions"):
        one.add(["m=x"])


def test_names_are_counted_in_bytes_as_the_store_does() -> None:
    wide = ["m=" + "漢" * 400 + str(number) for number in range(BYTES_MAX // 1_200 + 1)]
    assert sum(map(len, wide)) < BYTES_MAX
    assert PartitionList(t.APPEND, wide, all_partitions=False).all_partitions
