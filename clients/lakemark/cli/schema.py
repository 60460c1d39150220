"""``lakemark schema``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from lakemark.cli.context import Invocation, invocation
from lakemark.cli.output import show_done, show_json, show_rows, time_text
from lakemark.cli.snapshots import SnapshotName, snapshot_of
from lakemark.cli.tables import Name
from lakemark.client.schemas import added_column
from lakemark_core.evolution import (
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    format_path,
)
from lakemark_core.evolution.statements import parse_changes
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, format_type, parse_type

app = typer.Typer(help="The columns of a table: show them and their history, and change them.", no_args_is_help=True)
Column = Annotated[str, typer.Argument(metavar="COLUMN", help="a name, or a path: address.city, points.element.x")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="change nothing; say what would come of it, or why it is refused")
]
Expect = Annotated[
    int,
    typer.Option("--expect", metavar="SCHEMA", help="change the schema only if its latest version has this id", min=0),
]
First = Annotated[bool, typer.Option("--first", help="put it in front of all other columns")]
After = Annotated[str, typer.Option("--after", metavar="COLUMN", help="put it right after this column")]


@app.command()
def show(
    context: typer.Context,
    name: SnapshotName,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="show the columns of this version; default: the latest")
    ] = None,
) -> None:
    """Shows the columns of a table, or of one of its snapshots, with their nested fields."""
    call = invocation(context)
    with call.client() as client:
        at = snapshot_of(client, name, version=version)
        schema = client.snapshot(
            at.table, version=at.version, timestamp=at.timestamp, branch=at.branch, tag=at.tag
        ).schema
    _show_schema(call, schema)


@app.command()
def history(context: typer.Context, name: Name) -> None:
    """Lists all schemas of a table with the time and version of each, and what changed."""
    call = invocation(context)
    with call.client() as client:
        schemas = client.tables.schemas(name)
    if call.as_json:
        show_json(schemas)
        return
    rows = [
        [
            schema.schema.schema_id,
            schema.version,
            time_text(schema.committed_ms),
            "; ".join(schema.changes) or "created",
        ]
        for schema in schemas
    ]
    show_rows(["schema", "version", "since", "changes"], rows)


@app.command()
def add(
    context: typer.Context,
    name: Name,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="as in SQL: \"tip decimal(8,2) COMMENT 'text'\"")],
    to: Annotated[
        str, typer.Option("--to", metavar="STRUCT", help="path of a struct that gets the column as a field")
    ] = "",
    first: First = False,
    after: After = "",
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Adds a column. Existing rows have null in it."""
    _alter(context, name, added_column(column, to, first=first, after=after), dry_run=dry_run, expect=expect)


@app.command()
def drop(context: typer.Context, name: Name, column: Column, dry_run: DryRun = False, expect: Expect = 0) -> None:
    """Drops a column. Older versions keep it."""
    _alter(context, name, DropColumn(column), dry_run=dry_run, expect=expect)


@app.command()
def rename(
    context: typer.Context,
    name: Name,
    column: Column,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="new name, without the path")],
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Renames a column, without touching files."""
    _alter(context, name, RenameColumn(column, new_name), dry_run=dry_run, expect=expect)


@app.command()
def widen(
    context: typer.Context,
    name: Name,
    column: Column,
    new_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="new type, which must hold every value of the old one")
    ],
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Gives a column a wider type, without touching files."""
    _alter(context, name, WidenColumn(column, parse_type(new_type)), dry_run=dry_run, expect=expect)


@app.command()
def move(
    context: typer.Context,
    name: Name,
    column: Column,
    first: First = False,
    after: After = "",
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Moves a column to the front or after another one."""
    _alter(context, name, MoveColumn(column, first, after), dry_run=dry_run, expect=expect)


@app.command()
def comment(
    context: typer.Context,
    name: Name,
    column: Column,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="the comment; '' removes it")],
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Sets the comment of a column."""
    _alter(context, name, CommentColumn(column, text), dry_run=dry_run, expect=expect)


@app.command()
def relax(context: typer.Context, name: Name, column: Column, dry_run: DryRun = False, expect: Expect = 0) -> None:
    """Allows nulls in a NOT NULL column. This cannot be undone."""
    _alter(context, name, RelaxColumn(column), dry_run=dry_run, expect=expect)


@app.command()
def alter(
    context: typer.Context,
    name: Name,
    changes: Annotated[
        str,
        typer.Argument(
            metavar="CHANGES", help="what follows ALTER TABLE t in SQL: 'DROP COLUMN a; RENAME COLUMN b TO a'"
        ),
    ],
    dry_run: DryRun = False,
    expect: Expect = 0,
) -> None:
    """Makes several changes at once: all of them or none."""
    _alter(context, name, *parse_changes(changes), dry_run=dry_run, expect=expect)


def _alter(context: typer.Context, name: str, *changes: SchemaChange, dry_run: bool, expect: int) -> None:
    call = invocation(context)
    with call.client() as client:
        table = client.tables.alter(name, changes, expected_schema_id=expect, dry_run=dry_run)
    if call.as_json:
        show_json(table)
        return
    if table.schema is not None:
        if dry_run:
            show_done(f"{table.name} would have schema {table.schema.schema_id}; nothing was changed")
        else:
            show_done(f"{table.name} has schema {table.schema.schema_id}")
        _show_schema(call, table.schema)


def _show_schema(call: Invocation, schema: Schema) -> None:
    if call.as_json:
        show_json(schema)
        return
    rows = [
        [
            field.id,
            format_path(path),
            format_type(field.type),
            "partition" if len(path) == 1 and schema.is_partition(field.name) else "",
            "" if field.nullable else "NOT NULL",
            field.comment,
        ]
        for path, field in _fields(schema.columns, ())
    ]
    show_rows(["id", "column", "type", "", "nulls", "comment"], rows)


def _fields(fields: Sequence[Field], prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Each field with its path, parents before their fields."""
    for field in fields:
        path = (*prefix, field.name)
        yield path, field
        match field.type:
            case Struct(inner):
                yield from _fields(inner, path)
            case ListOf(element, element_id, nullable):
                yield from _fields([Field(element_id, "element", element, nullable)], path)
            case MapOf(key, value, key_id, value_id, nullable):
                pair = [Field(key_id, "key", key, nullable=False), Field(value_id, "value", value, nullable)]
                yield from _fields(pair, path)
