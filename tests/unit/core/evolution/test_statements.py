"""Changes of a schema as SQL."""

from __future__ import annotations

import time

import pytest

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
)
from lakemark_core.evolution.statements import parse_changes
from lakemark_core.types import Field, parse_type


def column(name: str, column_type: str, comment: str = "", *, nullable: bool = True) -> Field:
    return Field(0, name, parse_type(column_type), nullable, comment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ADD COLUMN tip INT", AddColumn(column("tip", "int"))),
        ("add column tip int first", AddColumn(column("tip", "int"), first=True)),
        ("ADD COLUMN a.b.tip DECIMAL(8, 2) AFTER fare", AddColumn(column("tip", "decimal(8,2)"), "a.b", after="fare")),
        (
            "ADD COLUMN s STRUCT<a: INT, `b c`: ARRAY<STRING>> COMMENT 'it''s; AFTER x' AFTER `d e`",
            AddColumn(column("s", "struct<a:int,`b c`:array<string>>", "it's; AFTER x"), after="d e"),
        ),
        ("ADD COLUMN x INT NOT NULL", AddColumn(column("x", "int", nullable=False))),
        ("DROP COLUMN `a.b`.c", DropColumn("`a.b`.c")),
        ("RENAME COLUMN points.element.x TO `east of`", RenameColumn("points.element.x", "east of")),
        ("ALTER COLUMN id TYPE map<string, bigint>", WidenColumn("id", parse_type("map<string,bigint>"))),
        (r"ALTER COLUMN id COMMENT 'a\'b;c'", CommentColumn("id", "a'b;c")),
        ("ALTER COLUMN id FIRST", MoveColumn("id", first=True)),
        ("ALTER COLUMN id AFTER x", MoveColumn("id", after="x")),
        ("ALTER  COLUMN\nid DROP NOT NULL", RelaxColumn("id")),
    ],
)
def test_one_change(text: str, expected: SchemaChange) -> None:
    assert parse_changes(text) == [expected]


def test_several_changes() -> None:
    assert parse_changes("DROP COLUMN a; ;RENAME COLUMN b TO a ;") == [DropColumn("a"), RenameColumn("b", "a")]


@pytest.mark.parametrize(
    "text",
    ["", " ; ", "ADD tip INT", "ADD COLUMN tip", "DROP COLUMN a b", "DROP COLUMN a'", "DROP COLUMN `a",
     "DROP COLUMN a.", "RENAME COLUMN a TO b.c", "ALTER COLUMN a TYPE", "ADD COLUMN tip INT, other INT", "SELECT 1",
     "ALTER COLUMN a"],
)  # fmt: skip
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_changes(text)


def test_white_space_is_read_once() -> None:
    begun = time.process_time()
    with pytest.raises(InvalidSchema):
        parse_changes("ADD COLUMN a " + " " * 100_000 + "x FIRST y")
    assert time.process_time() - begun < 2.0
