"""``lakemark tables``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lakemark import Client, Commit, Table
from lakemark.cli.context import Invocation, invocation
from lakemark.cli.options import listed
from lakemark.cli.output import show_done, show_fields, show_json, show_rows, size_text, time_text
from lakemark.cli.pairs import parse_pairs
from lakemark_core.bucket_directory import BucketChanges, described
from lakemark_core.bucket_tree import group_name
from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_core.types import format_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(help="Tables: list, create, change and drop them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="DATABASE.TABLE")]
Properties = Annotated[
    list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="a property; may be repeated")
]


TableId = Annotated[
    int,
    typer.Option(
        "--id", metavar="TABLE-ID", help="which of several dropped tables of this name (list --dropped shows ids)"
    ),
]


@app.command("list")
def list_tables(
    context: typer.Context,
    database: Annotated[str, typer.Argument(metavar="DATABASE")],
    kind: Annotated[str, typer.Option(help="only tables of this kind: lake or warehouse")] = "",
    dropped: Annotated[bool, typer.Option("--dropped", help="only dropped tables that undrop can bring back")] = False,
) -> None:
    """Lists the tables of a database."""
    call = invocation(context)
    if dropped:
        _list_dropped(call, database)
        return
    with call.client() as client:
        tables = client.tables.list(database, kind=kind)
    if call.as_json:
        show_json(tables)
    else:
        show_rows(["table", "kind", "type"], [[table.name, table.kind, table.hive_type] for table in tables])


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Shows a table with its columns."""
    call = invocation(context)
    with call.client() as client:
        _show(call, client.tables.get(name))


@app.command()
def create(
    context: typer.Context,
    name: Name,
    columns: Annotated[str, typer.Argument(help="columns as in SQL: 'id bigint NOT NULL, name string, month int'")],
    partitioned_by: Annotated[str, typer.Option(help="partition columns, separated by commas: year,month")] = "",
    properties: Properties = None,
    location: Annotated[
        str, typer.Option(help="directory or URI of the table; default: a directory below that of the database")
    ] = "",
    comment: Annotated[str, typer.Option(help="what the table holds")] = "",
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="do nothing if it exists already")] = False,
) -> None:
    """Creates a lake table."""
    call = invocation(context)
    with call.client() as client:
        table = client.tables.create(
            name,
            columns,
            partitioned_by=listed(partitioned_by),
            properties=parse_pairs(properties, "property"),
            location=location,
            comment=comment,
            if_not_exists=if_not_exists,
        )
    _show(call, table)


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="do nothing if it does not exist")] = False,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="never delete the table's files")] = False,
    now: Annotated[bool, typer.Option("--now", help="delete the table at once; it cannot be brought back")] = False,
) -> None:
    """Drops a lake table. For a while, undrop brings it back. Then it is deleted with its data, unless the user chose
    its location."""
    call = invocation(context)
    with call.client() as client:
        kept = client.tables.drop(name, if_exists=if_exists, purge=not keep_data, now=now)
    if call.as_json:
        show_json({"dropped": name, "until_ms": kept.until_ms if kept else None})
    elif kept:
        until = time_text(kept.until_ms)
        show_done(f"dropped table {name}; until {until} UTC it can be brought back: lakemark tables undrop {name}")
    else:
        show_done(f"dropped table {name}")


@app.command()
def undrop(
    context: typer.Context,
    name: Name,
    new_name: Annotated[
        str, typer.Option("--as", metavar="[DATABASE.]TABLE", help="bring the table back under this name")
    ] = "",
    table_id: TableId = 0,
) -> None:
    """Brings a dropped lake table back, with its versions, branches and tags."""
    call = invocation(context)
    with call.client() as client:
        table = client.tables.undrop(name, new_name, table_id=table_id)
    call.tell(table, f"{table.name} is back, at version {table.version}")


@app.command()
def purge(context: typer.Context, name: Name, table_id: TableId = 0) -> None:
    """Deletes a dropped lake table at once. It can then no longer be brought back."""
    call = invocation(context)
    with call.client() as client:
        client.tables.purge(name, table_id=table_id)
    call.tell({"purged": name}, f"deleted the dropped table {name}")


Where = Annotated[str, typer.Option(help="only files that may have rows with this condition: \"day = '2026-11-22'\"")]
Branch = Annotated[str, typer.Option(help="the branch; default: main")]
Master = Annotated[str, typer.Option(metavar="URL", help="where Spark runs")]
SparkSettings = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="a setting of Spark; may be repeated")
]


@contextmanager
def _spark(
    call: Invocation, what: str, master: str, settings: list[str] | None
) -> Iterator[tuple[Client, SparkSession]]:
    """The service, and a session of Spark, which does what the service does not do itself."""
    try:
        import lakemark_spark  # noqa: F401 - whether it can be had
        from lakemark.cli.spark import session
    except ImportError as error:
        raise FailedPrecondition(f"{what} needs Spark: pip install 'lakemark[spark]'") from error
    with call.client() as client, session(master, parse_pairs(settings, "setting")) as spark:
        yield client, spark


@app.command()
def compact(
    context: typer.Context,
    name: Name,
    where: Where = "",
    branch: Branch = "",
    master: Master = "local[*]",
    settings: SparkSettings = None,
) -> None:
    """Runs Spark to merge deltas into new base files; in a table without buckets it merges small files."""
    call = invocation(context)
    with _spark(call, "compaction", master, settings) as (client, spark):
        from lakemark_spark import compact as compact_table

        commit = compact_table(spark, name, where or None, server=client, branch=branch)
    _tell_rewrite(call, name, commit, "compacted", "nothing to merge")


@app.command()
def cluster(
    context: typer.Context,
    name: Name,
    where: Where = "",
    by: Annotated[
        str, typer.Option(metavar="COLUMNS", help='"x,y"; default: the table\'s lakemark.clustering.columns')
    ] = "",
    order: Annotated[str, typer.Option(help="sort or z-order; default: the table's lakemark.clustering.order")] = "",
    branch: Branch = "",
    master: Master = "local[*]",
    settings: SparkSettings = None,
) -> None:
    """Runs Spark to rewrite files with sorted rows, so that plans leave out more files."""
    call = invocation(context)
    columns = by.split(",") if by else None
    with _spark(call, "clustering", master, settings) as (client, spark):
        from lakemark_spark import cluster as cluster_table

        commit = cluster_table(
            spark, name, where or None, columns=columns, order=order or None, server=client, branch=branch
        )
    _tell_rewrite(call, name, commit, "clustered", "no such files")


@app.command()
def buckets(
    context: typer.Context,
    name: Name,
    split: Annotated[
        list[str] | None, typer.Option(metavar="BUCKET", help="split this bucket in two; may be repeated")
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option(metavar="BUCKET", help="merge the two halves of this bucket; may be repeated")
    ] = None,
    balance: Annotated[
        bool, typer.Option("--balance", help="split and merge by the sizes of files, as the table's properties say")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="with --balance, only say what would change")] = False,
) -> None:
    """Shows the buckets of an extendible index, or splits and merges them. No file is touched."""
    call = invocation(context)
    if balance and (split or merge):
        raise InvalidArgument("--balance chooses the buckets itself: leave --split and --merge out")
    if dry_run and not balance:
        raise InvalidArgument("--dry-run needs --balance")
    with call.client() as client:
        if balance:
            _tell_balance(call, name, client.buckets.balance(name, dry_run=dry_run), dry_run=dry_run)
            return
        if split or merge:
            client.buckets.alter(name, split=split or (), merge=merge or ())
        known = client.buckets.list(name)
    if call.as_json:
        show_json(known)
        return
    rows = [
        [one.name, one.files, one.shared_files, size_text(one.size_bytes), size_text(one.largest_bytes)]
        for one in known
    ]
    show_rows(["bucket", "files", "shared files", "size", "largest partition"], rows)


def _tell_balance(call: Invocation, name: str, changes: BucketChanges, *, dry_run: bool) -> None:
    if call.as_json:
        names = {"split": [*map(group_name, changes.split)], "merge": [*map(group_name, changes.merge)]}
        show_json({"table": name, **names, "dry_run": dry_run})
    elif not changes:
        show_done(f"the buckets of {name} have good sizes")
    else:
        show_done(f"{'would change' if dry_run else 'changed'} the buckets of {name}: {described(changes)}")


def _tell_rewrite(call: Invocation, name: str, commit: Commit | None, done: str, nothing: str) -> None:
    if call.as_json:
        show_json({"table": name, "version": commit.version if commit else None})
    elif commit:
        show_done(f"{done} {name}: version {commit.version}")
    else:
        show_done(f"{name} has {nothing}")


@app.command()
def rename(
    context: typer.Context,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="[DATABASE.]TABLE")],
) -> None:
    """Renames a table. Its data stays where it is."""
    call = invocation(context)
    with call.client() as client:
        table = client.tables.rename(name, new_name)
    call.tell(table, f"{name} is now {table.name}")


@app.command("set")
def set_properties(
    context: typer.Context,
    name: Name,
    properties: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE…")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="KEY", help="a property to remove; may be repeated")
    ] = None,
) -> None:
    """Sets and removes properties of a table."""
    if not properties and not remove:
        raise typer.BadParameter("name a property to set (key=value), or one to remove (--remove key)")
    call = invocation(context)
    with call.client() as client:
        table = client.tables.set_properties(name, parse_pairs(properties, "property"), remove=remove or ())
    if call.as_json:
        show_json(table)
    else:
        show_fields(dict(sorted(table.properties.items())))


def _list_dropped(call: Invocation, database: str) -> None:
    with call.client() as client:
        tables = client.tables.dropped(database)
    if call.as_json:
        show_json(tables)
        return
    rows = [
        [
            table.name,
            table.table_id,
            time_text(table.dropped_ms),
            time_text(table.until_ms),
            table.dropped_by,
            table.version,
            table.files,
            None if table.size_bytes is None else size_text(table.size_bytes),
        ]
        for table in tables
    ]
    show_rows(["table", "id", "dropped", "kept until", "by", "version", "files", "size"], rows)


def _show(call: Invocation, table: Table) -> None:
    if call.as_json:
        show_json(table)
        return
    show_fields(
        {
            "name": table.name,
            "kind": table.kind,
            "location": table.location,
            "version": table.version if table.kind == "lake" else None,
            "conflict policy": table.conflict_policy,
            "created": time_text(table.created_ms),
            "owner": table.owner,
            "comment": table.comment,
            "properties": dict(sorted(table.properties.items())),
        }
    )
    if table.schema is not None:
        rows = [
            [
                column.name,
                format_type(column.type),
                "partition" if table.schema.is_partition(column.name) else "",
                "" if column.nullable else "NOT NULL",
                column.comment,
            ]
            for column in table.schema.columns
        ]
        show_rows(["column", "type", "", "nulls", "comment"], rows)
