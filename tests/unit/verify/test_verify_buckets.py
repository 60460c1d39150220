"""What the checker reports of an extendible bucket index: two base files that may have one key, a directory that is
none."""

from __future__ import annotations

from lakemark_core.bucket_tree import bucket_named
from lakemark_core.types import BIGINT, INT, Field, Schema
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog import lake as lakes
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.timeline.jobs.buckets import BucketsJob
from lakemark_server.verify import verify
from tests.lakes import Lake, whole

SCHEMA = Schema.build([Field(0, "id", BIGINT), Field(0, "month", INT)], ["month"])
PROPERTIES = {
    "lakemark.primary-key": "id,month",
    "lakemark.bucket.count": "2",
    "lakemark.bucket.index": "extendible",
}


def table(lake: Lake) -> LakeTable:
    return lake.catalog.create_lake_table(LakeTableRecord(database="default", name="k", properties=PROPERTIES), SCHEMA)


def put(lake: Lake, made: LakeTable, *groups: str, month: int = 1) -> None:
    instant = lake.open(made, operation=t.OVERWRITE_PREDICATE)
    files = [
        p.DataFile(
            path=f"{instant}/month={month}/{group}/f",
            file_group=group,
            bucket=bucket_named(group),
            kind=p.BASE,
            partition=[whole(month)],
            row_count=1,
        )
        for group in groups
    ]
    lake.commit(made, instant, files)


def test_base_files_that_may_have_one_key_are_told(lake: Lake) -> None:
    made = table(lake)
    put(lake, made, "bucket-0-of-2", "bucket-1-of-4", "bucket-3-of-8")
    put(lake, made, "bucket-3-of-4", month=2)
    assert lake.timeline.alter_buckets(made.table_id, BucketsJob((2,), ())).record.bucket_directory
    assert verify(lake.store) == []

    # The service refuses such a file, unless it does not know the table's buckets.
    kept = lake.store.read(lambda tx: lakes.load(tx, made.table_id).record)
    plain = LakeTableRecord()
    plain.CopyFrom(kept)
    plain.properties.clear()
    lake.store.transact(lambda tx: lakes.put(tx, plain))
    unaware = lake.store.read(lambda tx: lakes.load(tx, made.table_id))
    instant = lake.open(unaware)
    wrong = p.DataFile(path=f"{instant}/month=1/x/f", file_group="bucket-1-of-2", kind=p.BASE, partition=[whole(1)])
    lake.commit(unaware, instant, [wrong])
    lake.store.transact(lambda tx: lakes.put(tx, kept))
    told = sorted(verify(lake.store))
    assert len(told) == 2
    assert "version 4 of branch 'main': base files " in told[0]
    assert "bucket-1-of-4/f have the same keys" in told[0]
    assert "bucket-3-of-8/f have the same keys" in told[1]


def test_a_directory_that_is_none_is_told(lake: Lake) -> None:
    made = table(lake)
    made.record.bucket_directory = b"\xff\xff"
    lake.store.transact(lambda tx: lakes.put(tx, made.record))
    assert any("its buckets cannot be looked at" in one for one in verify(lake.store))
