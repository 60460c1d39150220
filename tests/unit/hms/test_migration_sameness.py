"""When two objects of Metastores count as the same."""

from __future__ import annotations

import pytest

from lakemark_hms.migration.sameness import differences
from lakemark_thrift.ttypes import Database, FieldSchema, SerDeInfo, StorageDescriptor, Table


def table(**fields: object) -> Table:
    storage = StorageDescriptor(
        cols=[FieldSchema(name="a", type="int")],
        location=fields.pop("location", "file:/t"),
        serdeInfo=SerDeInfo(parameters=fields.pop("serde", None)),
        numBuckets=fields.pop("buckets", -1),
    )
    return Table(tableName="t", dbName="d", sd=storage, **fields)


@pytest.mark.parametrize(
    ("source", "copy"),
    [
        (table(), table(parameters={}, partitionKeys=[], viewOriginalText="", retention=0)),
        (table(serde={}), table(serde=None)),
        (table(parameters={"a": "b"}), table(parameters={"a": "b", "numFiles": "3", "EXTERNAL": "TRUE"})),
        (table(parameters={"transient_lastDdlTime": "1"}), table(parameters={"transient_lastDdlTime": "2"})),
        (table(), table(ownerType=1)),
        (table(createTime=1, id=7, catName="hive"), table(createTime=2)),
        (table(location="s3a://b/t/"), table(location="s3://b/t")),
        (table(location="file:/a b"), table(location="file:///a%20b")),
    ],
)
def test_what_means_the_same(source: Table, copy: Table) -> None:
    assert differences(source, copy) == ""


@pytest.mark.parametrize(
    ("source", "copy", "words"),
    [
        (table(location="file:/t"), table(location="file:/u"), "sd.location is 'file:/t' and in the copy 'file:/u'"),
        (table(parameters={"numFiles": "3"}), table(), "parameters.numFiles is '3' and in the copy missing"),
        (table(), table(parameters={"a": "b"}), "parameters.a is missing and in the copy 'b'"),
        (table(parameters={"a": ""}), table(), "parameters.a is '' and in the copy missing"),
        (table(), table(parameters={"a": ""}), "parameters.a is missing and in the copy ''"),
        (
            table(serde={"serialization.null.format": ""}),
            table(),
            "sd.serdeInfo.parameters.serialization.null.format is '' and in the copy missing",
        ),
        (
            table(serde={"a": "b", "serialization.null.format": ""}),
            table(serde={"a": "b"}),
            "sd.serdeInfo.parameters.serialization.null.format is '' and in the copy missing",
        ),
        (table(buckets=4), table(buckets=8), "sd.numBuckets is 4 and in the copy 8"),
        (table(tableType="MANAGED_TABLE"), table(), "tableType is 'MANAGED_TABLE' and in the copy missing"),
        (table(location=None), table(), "sd.location is missing and in the copy 'file:/t'"),
    ],
)
def test_what_differs_is_told(source: Table, copy: Table, words: str) -> None:
    assert differences(source, copy) == words


def test_of_databases() -> None:
    source = Database(name="d", ownerName="ann", locationUri="file:/d", parameters={"k": "v"})
    assert differences(source, Database(name="d", ownerName="bob", locationUri="file:/d", parameters={"k": "w"})) == (
        "ownerName is 'ann' and in the copy 'bob'; parameters.k is 'v' and in the copy 'w'"
    )
