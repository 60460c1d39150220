"""Changes of a schema: the effect of each, and why others are refused."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument, InvalidSchema, LimitExceeded
from lakemark_core.evolution import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    readable_with,
)
from lakemark_core.types import Field, Schema, Struct, assign_ids, format_type, parse_type
from lakemark_server.catalog.schema_changes import CHANGES_MAX, ColumnUse, apply_changes

COLUMNS = (
    "id bigint not null, small smallint, f float, d decimal(8,2), t varchar(5), c char(3), day date, "
    "address struct<city:string,zip:int,only:struct<x:int>>, points array<struct<x:int,y:float>>, "
    "prices map<string,int>, tags array<tinyint>, m int, k decimal(4,1), dc char(2), dd date"
)
PARTITIONS = ("m", "k", "dc", "dd")


def schema_of(text: str, partitions: tuple[str, ...] = ()) -> tuple[Schema, int]:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, Struct)
    return assign_ids(Schema.build(parsed.fields, partitions, 1))


SCHEMA, LAST_ID = schema_of(COLUMNS, PARTITIONS)


def applied(*changes: SchemaChange, uses: dict[str, ColumnUse] | None = None) -> Schema:
    changed, last = apply_changes(SCHEMA, LAST_ID, changes, uses or {})
    assert last >= changed.last_id
    assert readable_with(SCHEMA, changed) == []
    return changed


def names(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns]


def type_at(schema: Schema, path: str) -> str:
    found = schema.find_path(path.split("."))
    assert found is not None
    return format_type(found.type)


def field(text: str) -> Field:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, Struct)
    return parsed.fields[0]


def test_a_column_is_added_last_before_the_partition_columns_with_new_ids() -> None:
    schema = applied(AddColumn(field("extra struct<a:int,b:array<int>> comment 'new'")))
    assert names(schema) == [*names(SCHEMA)[:-4], "extra", *PARTITIONS]
    extra = schema.field("extra")
    assert (extra.id, extra.comment) == (LAST_ID + 1, "new")
    assert isinstance(extra.type, Struct)
    assert sorted(one.id for one in extra.type.fields) == [LAST_ID + 2, LAST_ID + 3]


def test_ids_that_a_client_sends_do_not_count() -> None:
    assert applied(AddColumn(Field(1, "extra", parse_type("int")))).field("extra").id == LAST_ID + 1


def test_positions() -> None:
    assert names(applied(AddColumn(field("z int"), first=True)))[0] == "z"
    assert names(applied(AddColumn(field("z int"), after="ID")))[1] == "z"
    assert names(applied(MoveColumn("f", first=True)))[0] == "f"
    assert names(applied(MoveColumn("id", after="f")))[:3] == ["small", "f", "id"]
    assert type_at(applied(MoveColumn("address.zip", first=True)), "address").startswith("struct<zip:int,city")
    assert type_at(applied(AddColumn(field("s int"), "address", after="city")), "address").startswith(
        "struct<city:string,s:int,zip"
    )


def test_fields_are_added_to_structs_wherever_they_are() -> None:
    assert type_at(applied(AddColumn(field("y int"), "address.only")), "address.only") == "struct<x:int,y:int>"
    assert type_at(applied(AddColumn(field("z int"), "points.element")), "points") == (
        "array<struct<x:int,y:float,z:int>>"
    )


def test_drops_and_renames() -> None:
    assert "f" not in names(applied(DropColumn("F")))
    assert type_at(applied(DropColumn("address.zip")), "address") == "struct<city:string,only:struct<x:int>>"
    renamed = applied(RenameColumn("ID", "key"))
    assert renamed.field("key").id == SCHEMA.field("id").id
    assert applied(RenameColumn("id", "Id")).field("id").name == "Id"
    assert type_at(applied(RenameColumn("points.element.x", "east")), "points") == "array<struct<east:int,y:float>>"


def test_a_name_that_was_dropped_comes_back_with_another_id() -> None:
    schema = applied(DropColumn("f"), AddColumn(field("f float"), after="small"))
    assert names(schema) == names(SCHEMA)
    assert schema.field("f").id == LAST_ID + 1


def test_comments_and_nulls() -> None:
    schema = applied(CommentColumn("address.city", "where"), CommentColumn("m", "month"), RelaxColumn("id"))
    city = schema.find_path(["address", "city"])
    assert city is not None
    assert (city.comment, schema.field("m").comment, schema.field("id").nullable) == ("where", "month", True)


WIDER = [
    ("small", "int"), ("small", "bigint"), ("small", "float"), ("small", "double"), ("small", "decimal(5,0)"),
    ("small", "decimal(7,2)"), ("f", "double"), ("d", "decimal(38,2)"), ("t", "varchar(6)"), ("t", "string"),
    ("c", "varchar(3)"), ("c", "string"), ("day", "timestamp_ntz"), ("id", "decimal(19,0)"), ("m", "bigint"),
    ("m", "decimal(10,0)"), ("k", "decimal(9,1)"), ("tags.element", "int"), ("prices.value", "bigint"),
    ("points.element.y", "double"), ("address.zip", "double"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "wider"), WIDER)
def test_types_are_widened(column: str, wider: str) -> None:
    schema = applied(WidenColumn(column, parse_type(wider)))
    top = schema.field(column.partition(".")[0])
    assert wider in format_type(top.type)
    assert top.id == SCHEMA.field(top.name).id


NARROWER = [
    ("id", "int", "narrower"), ("id", "double", "would round"), ("id", "decimal(18,0)", "digits before the point"),
    ("m", "float", "would round"), ("f", "int", "is not lossless"), ("f", "decimal(38,10)", "is not lossless"),
    ("d", "decimal(7,2)", "narrower"), ("d", "decimal(10,3)", "scale"), ("d", "double", "is not lossless"),
    ("t", "varchar(4)", "narrower"), ("t", "char(9)", "padded"), ("c", "varchar(2)", "narrower"),
    ("c", "char(4)", "padded"), ("t", "binary", "is not lossless"), ("day", "timestamp", "time zone"),
    ("day", "string", "is not lossless"), ("id", "string", "is not lossless"),
    ("address", "string", "one by one"), ("tags", "array<int>", "one by one"),
    ("m", "decimal(12,2)", "partition column"), ("dc", "string", "partition column"),
    ("dd", "timestamp_ntz", "partition column"), ("prices.key", "string", "keys of a map"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "other", "reason"), NARROWER)
def test_other_types_are_refused(column: str, other: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        applied(WidenColumn(column, parse_type(other)))


REFUSED: list[tuple[SchemaChange, str]] = [
    (AddColumn(field("z int not null")), "cannot be NOT NULL"),
    (AddColumn(field("ID int")), "case does not matter"),
    (AddColumn(field("M int")), "case does not matter"),
    (AddColumn(field("CITY int"), "address"), "case does not matter"),
    (AddColumn(Field(0, "a,b", parse_type("int"))), "cannot have"),
    (AddColumn(field("z int"), "nothing"), "no 'nothing' in the table"),
    (AddColumn(field("z int"), "address.nothing"), "no 'nothing' in 'address'"),
    (AddColumn(field("z int"), "id"), "has no fields"),
    (AddColumn(field("z int"), "points"), "name its element or value"),
    (AddColumn(field("z int"), "points.element.x.y"), "has no fields"),
    (AddColumn(field("z int"), after="m"), "partition columns come last"),
    (AddColumn(field("z int"), after="nothing"), "no 'nothing' in the table"),
    (AddColumn(field("z int comment 'x'"), "address", after="nothing"), "no 'nothing' in 'address'"),
    (DropColumn("nothing"), "no column 'nothing'"),
    (DropColumn("m"), "every file belongs"),
    (DropColumn("address.only.x"), "has no fields"),
    (DropColumn("points.element"), "consists of"),
    (DropColumn("prices.value"), "consists of"),
    (RenameColumn("m", "month"), "part of every partition"),
    (RenameColumn("id", "SMALL"), "case does not matter"),
    (RenameColumn("address.zip", "City"), "case does not matter"),
    (RenameColumn("id", " id"), "begins or ends"),
    (RenameColumn("id", ""), "empty"),
    (RenameColumn("tags.element", "e"), "consists of"),
    (MoveColumn("m", first=True), "order is that of every partition"),
    (MoveColumn("id", after="m"), "partition columns come last"),
    (MoveColumn("id", after="id"), "after itself"),
    (MoveColumn("id", after="nothing"), "no 'nothing'"),
    (MoveColumn("id"), "say where to"),
    (CommentColumn("tags.element", "x"), "consists of"),
    (CommentColumn("id", "x" * 4_001), "at most 4000"),
    (RelaxColumn("a..b"), "not the path"),
    (RelaxColumn("nothing.at.all"), "no column 'nothing'"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_changes_that_cannot_be_are_refused_with_the_reason(change: SchemaChange, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        applied(change)


def test_the_last_data_column_stays() -> None:
    schema, last = schema_of("a int, m int", ("m",))
    with pytest.raises(InvalidSchema, match="at least one column"):
        apply_changes(schema, last, [DropColumn("a")], {})


def test_columns_that_properties_name() -> None:
    key, order = ColumnUse("p.key", exact=True), ColumnUse("p.order", exact=False)
    uses = {"small": key, "f": order}
    for change in (DropColumn("Small"), RenameColumn("f", "g"), WidenColumn("small", parse_type("int"))):
        with pytest.raises(InvalidSchema, match=r"property p\."):
            applied(change, uses=uses)
    assert format_type(applied(WidenColumn("f", parse_type("double")), uses=uses).field("f").type) == "double"
    assert applied(MoveColumn("small", first=True), uses=uses).columns[0].name == "small"


def test_every_refused_change_is_told_of() -> None:
    with pytest.raises(InvalidSchema) as refused:
        applied(DropColumn("m"), DropColumn("f"), WidenColumn("id", parse_type("int")))
    assert "drop column m: " in refused.value.message
    assert "widen column id to int: " in refused.value.message
    assert "drop column f" not in refused.value.message


def test_limits() -> None:
    with pytest.raises(InvalidArgument, match="no change"):
        applied()
    with pytest.raises(LimitExceeded):
        applied(*[RelaxColumn("id")] * (CHANGES_MAX + 1))
    deep = "int"
    for _ in range(64):
        deep = f"array<{deep}>"
    with pytest.raises(InvalidSchema, match="nested deeper than 64"):
        applied(AddColumn(Field(0, "deep", parse_type(deep)), "address"))
    wide = "struct<" + ",".join(f"f{at}:int" for at in range(20_000)) + ">"
    with pytest.raises(InvalidSchema, match="more than 20000 columns"):
        applied(AddColumn(field(f"wide {wide}")))


def test_paths_with_dots_stand_in_backquotes() -> None:
    schema, last = schema_of("`a.b` struct<`c.d`:int>, z int")
    changed, _ = apply_changes(schema, last, [RenameColumn("`a.b`.`c.d`", "e")], {})
    assert format_type(changed.field("a.b").type) == "struct<e:int>"


@pytest.mark.parametrize("new", ["string", "binary", "date", "boolean"])
def test_a_change_that_is_not_lossless_is_told_as_that(new: str) -> None:
    """A text can hold every bigint, but it compares and sorts differently."""
    words = f"a change from bigint to {new} is not lossless: .* add a column of type {new} and fill it instead"
    with pytest.raises(InvalidSchema, match=words):
        applied(WidenColumn("id", parse_type(new)))
