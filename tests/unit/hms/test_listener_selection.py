"""Where events make a listener look."""

from __future__ import annotations

import pytest

from lakemark_hms.listener.selection import Rename, Selection, looks_of
from lakemark_hms.wire.codec import encode_struct
from lakemark_proto.v1 import catalog_pb2, types_pb2
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.events.filters import filter_of
from lakemark_thrift.ttypes import FieldSchema, StorageDescriptor, Table


def state(name: str, location: str = "file:/t") -> catalog_pb2.Table:
    return catalog_pb2.Table(name=types_pb2.TableName(database="d", table=name), location=location)


def hive(cols: str, **parameters: str) -> bytes:
    columns = [FieldSchema(name=one, type="int") for one in cols]
    return encode_struct(Table(tableName="t", sd=StorageDescriptor(cols=columns), parameters=parameters))


def of_table(kind: pb.EventKind.ValueType, **change: object) -> pb.Event:
    return pb.Event(kind=kind, database="d", table="t", table_change=pb.TableChange(**change))


def of_partitions(count: int, *changes: pb.PartitionChange) -> pb.Event:
    return pb.Event(
        kind=pb.PARTITIONS_ALTERED,
        database="d",
        table="t",
        partitions_change=pb.PartitionsChange(columns=["p"], count=count, partitions=changes),
    )


def test_several_events_of_a_table_are_one_look() -> None:
    one = pb.PartitionChange(values=["1"])
    two = pb.PartitionChange(values=["3"], values_before=["2"])
    looks = looks_of([of_partitions(1, one), of_partitions(1, two), of_partitions(1, one)])
    assert looks.tables == {("d", "t"): {("1",), ("2",), ("3",)}}


def test_partitions_that_are_not_listed_are_all_of_them() -> None:
    looks = looks_of([of_partitions(7_000), of_partitions(1, pb.PartitionChange(values=["1"]))])
    assert looks.tables == {("d", "t"): None}


def test_a_commit_of_main_is_a_look_at_the_table_and_one_of_a_branch_is_not() -> None:
    commit = pb.Event(kind=pb.COMMITTED, database="d", table="t", commit=pb.CommitDetail(branch="main"))
    branch = pb.Event(kind=pb.COMMITTED, database="d", table="b", commit=pb.CommitDetail(branch="dev"))
    assert looks_of([commit, branch]).tables == {("d", "t"): set()}


def test_a_rename_is_a_look_at_both_names() -> None:
    looks = looks_of([of_table(pb.TABLE_RENAMED, before=state("t"), after=state("u"))])
    assert looks.tables == {("d", "t"): None, ("d", "u"): None}
    assert looks.renames == [Rename(("d", "t"), ("d", "u"))]


@pytest.mark.parametrize(
    ("change", "partitions"),
    [
        ({"hive_before": hive("a", k="1"), "hive_after": hive("a", k="2")}, set()),
        ({"hive_before": hive("a"), "hive_after": hive("ab")}, None),
        ({"after": state("t", "file:/u"), "hive_before": hive("a"), "hive_after": hive("a")}, None),
        ({}, set()),
    ],
)
def test_an_altered_table_is_a_look_at_its_partitions_if_they_may_follow(
    change: dict[str, object], partitions: set[tuple[str, ...]] | None
) -> None:
    looks = looks_of([of_table(pb.TABLE_ALTERED, **({"before": state("t"), "after": state("t")} | change))])
    assert looks.tables == {("d", "t"): partitions}


def test_databases_functions_and_a_restored_store() -> None:
    function = pb.FunctionChange(name_before="f", name_after="g")
    looks = looks_of(
        [
            pb.Event(kind=pb.DATABASE_DROPPED, database="d"),
            pb.Event(kind=pb.FUNCTION_ALTERED, database="d", function_change=function),
            pb.Event(kind=pb.QUOTA_CHANGED),
            pb.Event(kind=pb.STATISTICS_CHANGED, database="d", table="t"),
        ]
    )
    assert (looks.databases, looks.functions) == ({"d"}, {("d", "f"), ("d", "g")})
    assert (looks.tables, looks.everything) == ({}, False)
    assert looks_of([pb.Event(kind=pb.STORE_RESTORED)]).everything


def test_patterns_choose_databases_and_tables() -> None:
    chosen = Selection(filter_of(pb.EventFilter(patterns=["sales", "web.clicks_*"])))
    assert [chosen.whole_database(name) for name in ("sales", "web", "other")] == [True, False, False]
    assert [chosen.reaches_into(name) for name in ("sales", "web", "other")] == [True, True, False]
    assert chosen.table("sales", "any")
    assert chosen.table("web", "clicks_1")
    assert not chosen.table("web", "views")
    everything = Selection(filter_of(pb.EventFilter()))
    assert everything.table("a", "b")
    assert everything.whole_database("a")
    assert everything.reaches_into("a")
