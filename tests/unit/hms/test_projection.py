"""Tables with some of their fields."""

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_hms.errors import NotGiven
from lakemark_hms.projection import Projection
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import STRING, patch
from lakemark_hms.wire.splice import string_value
from lakemark_thrift.ttypes import FieldSchema, GetProjectionsSpec, SerDeInfo, StorageDescriptor, Table

WHOLE = Table(
    tableName="t",
    dbName="d",
    catName="hive",
    owner="ann",
    createTime=7,
    sd=StorageDescriptor(
        cols=[FieldSchema("a", "int", None)],
        location="file:/t",
        numBuckets=3,
        serdeInfo=SerDeInfo("n", "lib", {"k": "v"}),
    ),
    parameters={"k": "v"},
)


def projected(*names: str) -> Table:
    projection = Projection.of(GetProjectionsSpec(fieldList=list(names)))
    assert projection is not None
    return decode_struct(Table, projection.apply(encode_struct(WHOLE)))


def test_fields_of_all_depths() -> None:
    serde = SerDeInfo(serializationLib="lib")
    expected = Table(
        tableName="t",
        sd=StorageDescriptor(location="file:/t", numBuckets=3, serdeInfo=serde),
        createTime=0,
        lastAccessTime=0,
        retention=0,
    )
    names = ("tableName", "sd.serdeInfo.serializationLib", "sd.location", "sd.numBuckets", "tableName")
    assert projected(*names) == expected


def test_the_catalog_comes_with_the_database_and_numbers_are_always_there() -> None:
    assert projected("dbName") == Table(dbName="d", catName="hive", createTime=0, lastAccessTime=0, retention=0)
    assert projected("createTime").createTime == 7


def test_fields_that_the_table_has_not_are_missing() -> None:
    assert projected("viewOriginalText") == Table(createTime=0, lastAccessTime=0, retention=0)


def test_fields_of_other_releases_are_left_out_like_others() -> None:
    newer = patch(encode_struct(WHOLE), {99: (STRING, string_value("new"))})
    projection = Projection.of(GetProjectionsSpec(fieldList=["owner"]))
    assert projection is not None
    assert b"new" not in projection.apply(newer)


@pytest.mark.parametrize(
    "spec",
    [
        None,
        GetProjectionsSpec(),
        GetProjectionsSpec(fieldList=[]),
        GetProjectionsSpec(fieldList=["owner", "parameters"]),
    ],
)
def test_who_asks_for_nothing_or_for_lists_gets_whole_tables(spec: GetProjectionsSpec | None) -> None:
    assert Projection.of(spec) is None


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(NotGiven, match="no fields x, y"):
        Projection.of(GetProjectionsSpec(fieldList=["owner", "x", "y"]))
    with pytest.raises(InvalidArgument, match="by patterns"):
        Projection.of(GetProjectionsSpec(includeParamKeyPattern="a%"))
