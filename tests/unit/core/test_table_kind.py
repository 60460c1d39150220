"""What properties make of a table: legal kinds, and every refusal with what to do."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_core.table_kind import TableKind, check_change, kind_of
from lakemark_core.types import Field, Schema, parse_type

KEY, MODE, ORDERING, BY, BUCKETS, DELETES = (
    "lakemark.primary-key",
    "lakemark.write.mode",
    "lakemark.merge.ordering-column",
    "lakemark.merge.by",
    "lakemark.bucket.count",
    "lakemark.merge.deletes.retain-ms",
)
INDEX, SPLIT = "lakemark.bucket.index", "lakemark.bucket.split-size-bytes"
WEEK = 7 * 24 * 3_600_000
COLUMNS = {"id": "bigint", "city": "string", "at": "timestamp", "x": "double", "tags": "array<int>", "day": "date"}
SCHEMA = Schema.build([Field(0, name, parse_type(text)) for name, text in COLUMNS.items()], ["day"])


def test_a_table_without_such_properties_has_no_key_and_is_written_again() -> None:
    assert kind_of({}) == TableKind() == kind_of({MODE: "Copy-On-Write"})
    assert not TableKind().merges_on_read


def test_all_of_them_at_once() -> None:
    kind = kind_of({KEY: " ID , day", MODE: " MERGE-on-read ", ORDERING: " at ", BUCKETS: " 16 "})

    assert kind == TableKind(("ID", "day"), "merge-on-read", "at", "row", 16, WEEK)
    assert kind.merges_on_read
    kind.check(SCHEMA)
    assert [field.name for field in kind.key_fields(SCHEMA)] == ["id", "day"]
    assert [field.name for field in kind.bucket_fields(SCHEMA)] == ["id"], "the partition says the day already"


def test_deletes_are_kept_where_they_may_be_overtaken() -> None:
    ordered = {KEY: "id,day", ORDERING: "at"}
    assert kind_of(ordered | {DELETES: " 60000 "}).deletes_retained_ms == 60_000
    assert kind_of(ordered | {DELETES: "0"}).deletes_retained_ms == 0
    assert kind_of(ordered).deletes_retained_ms == WEEK
    assert kind_of({KEY: "id"}).deletes_retained_ms == 0


def test_a_key_without_buckets_need_not_name_the_partition() -> None:
    kind_of({KEY: "id"}).check(SCHEMA)


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({KEY: "id,"}, "not a list of columns"),
        ({KEY: ""}, "not a list of columns"),
        ({KEY: "idd"}, r"lakemark.primary-key: there is no column 'idd'; did you mean 'id'"),
        ({KEY: "id,ID"}, "names a column twice"),
        ({KEY: "x"}, "'x' is double; .* floating point"),
        ({KEY: "tags"}, r"'tags' is array<int>; .* neither nested"),
        ({KEY: "id", MODE: "mor"}, "'mor' is not known; use copy-on-write or merge-on-read"),
        ({KEY: "id", BY: "cell"}, "'cell' is not known; use row or column"),
        ({KEY: "id", MODE: "merge-on-read"}, "needs lakemark.bucket.count"),
        ({KEY: "id", BUCKETS: "8"}, "lacks the partition column day"),
        ({KEY: "day", BUCKETS: "8"}, "only partition columns"),
        ({KEY: "id,day", BUCKETS: "0"}, "not a number from 1 on"),
        ({KEY: "id,day", BUCKETS: "eight"}, "not a number from 1 on"),
        ({KEY: "id,day", BUCKETS: "65537"}, "at most 65536 buckets"),
        ({KEY: "id,day", BUCKETS: "6", INDEX: "extendible"}, "begins with a power of two, .* use 4 or 8"),
        ({KEY: "id", INDEX: "extendible"}, "'extendible' needs lakemark.bucket.count"),
        ({KEY: "id", INDEX: "growing"}, "'growing' is not known; use fixed or extendible"),
        ({INDEX: "extendible"}, "lakemark.bucket.index is for tables with a key"),
        ({KEY: "id,day", BUCKETS: "4", SPLIT: "100000"}, "is for tables with lakemark.bucket.index = 'extendible'"),
        ({KEY: "id,day", BUCKETS: "4", INDEX: "extendible", SPLIT: "9999"}, "not a number from 10000 on"),
        ({KEY: "id", DELETES: "1"}, "is for tables with lakemark.merge.ordering-column"),
        ({KEY: "id", ORDERING: "at", DELETES: "-1"}, "not a number from 0 on"),
        ({KEY: "id", ORDERING: "when"}, r"ordering-column: there is no column 'when'"),
        ({KEY: "id", ORDERING: " "}, "names no column"),
        ({KEY: "id", ORDERING: "id"}, "belongs to the key"),
        ({KEY: "id", ORDERING: "tags"}, r"'tags' is array<int>"),
        ({KEY: "id", ORDERING: "at"}, "ordering-column = 'at' needs lakemark.bucket.count"),
        ({KEY: "id", ORDERING: "at", BY: "column"}, "goes by the order of commits"),
        ({MODE: "merge-on-read"}, "lakemark.write.mode is for tables with a key"),
        ({BUCKETS: "8"}, "lakemark.bucket.count is for tables with a key"),
        ({ORDERING: "at"}, "ordering-column is for tables with a key"),
        ({BY: "column"}, "lakemark.merge.by is for tables with a key"),
    ],
)
def test_what_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        kind_of(properties).check(SCHEMA)


def test_what_files_were_written_by_stays() -> None:
    before = {KEY: "id,day", BUCKETS: "4"}
    check_change(before, {**before, MODE: "merge-on-read", "owner": "me"})
    for changed, told in (
        ({KEY: "id,day", BUCKETS: "8"}, "lakemark.bucket.count is '4' and cannot be changed"),
        ({KEY: "id,day"}, "lakemark.bucket.count is '4' and cannot be changed"),
        ({**before, ORDERING: "at"}, "ordering-column is not set and cannot be changed"),
        ({**before, KEY: "id,city,day"}, "lakemark.primary-key is 'id,day'"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            check_change(before, changed)
