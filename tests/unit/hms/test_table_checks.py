"""Which tables are refused, and with what exception of Hive."""

from typing import Any

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_hms.errors import NotGiven
from lakemark_hms.table_checks import check_stored_as, check_table, is_known_type
from lakemark_thrift.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table


def table(*columns: tuple[str | None, str | None], keys: tuple[tuple[str, str], ...] = (), **fields: Any) -> Table:
    storage = StorageDescriptor(cols=[FieldSchema(name, of) for name, of in columns], serdeInfo=SerDeInfo())
    return Table(**({"tableName": "t", "sd": storage} | fields), partitionKeys=[FieldSchema(*key) for key in keys])


@pytest.mark.parametrize(
    "text",
    [
        "int", "decimal(10,2)", "varchar(5)", "array<struct<a:xyz>>", "map<string,int>", "uniontype<int,string>",
        "timestamp with local time zone", "STRING", "void", "interval_day_time", "<derived from deserializer>",
    ],
)  # fmt: skip
def test_the_first_word_of_a_type_is_one_of_hives(text: str) -> None:
    assert is_known_type(text)


@pytest.mark.parametrize("text", ["", " int", "xyz", "integer", "json", "in", "int4", "(int)", "<derived>", "ínt"])
def test_other_words_are_none(text: str) -> None:
    assert not is_known_type(text)


def test_a_table_that_is_as_it_should_be() -> None:
    good = table(("a", "int"), keys=(("p", "string"),))
    check_table(good)
    check_stored_as(good)


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (table(tableName=None), NotGiven, "name of the table is null"),
        (table(tableName=""), InvalidArgument, "has no name"),
        (table(sd=None), NotGiven, "storage descriptor"),
        (table(sd=StorageDescriptor()), NotGiven, "column list"),
        (table(("a", None)), NotGiven, "'a' of table 't' has no type"),
        (table((None, "int")), InvalidArgument, "without a name"),
        (table(("a", "int"), ("A", "int")), InvalidArgument, "'a' twice"),
        (table(("a", "int"), keys=(("a", "int"),)), InvalidArgument, "'a' twice"),
    ],
)
def test_what_is_wrong_is_named(bad: Table, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        check_table(bad)
    assert type(raised.value) is error


def test_a_type_that_the_table_has_already_stays() -> None:
    odd = table(("a", "xyz"))
    with pytest.raises(InvalidArgument, match="'xyz'"):
        check_stored_as(odd)
    check_stored_as(odd, {"xyz"})


@pytest.mark.parametrize("location", ["/", "file:/", "hdfs://names:8020", "s3a://bucket/", "hdfs://names//"])
def test_no_table_lies_in_the_root_of_everything(location: str) -> None:
    root = table(sd=StorageDescriptor(cols=[], serdeInfo=SerDeInfo(), location=location))
    with pytest.raises(InvalidArgument, match=r"^t location must not be root path$"):
        check_stored_as(root)


def test_a_table_has_a_serde() -> None:
    with pytest.raises(NotGiven, match="serdeInfo is null"):
        check_stored_as(table(sd=StorageDescriptor(cols=[])))
