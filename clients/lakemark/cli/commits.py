"""``lakemark files commit`` and ``lakemark files commit-together``: commit parquet files that already exist."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lakemark import Client, Commit, Writer
from lakemark.cli.context import invocation
from lakemark.cli.output import show_done, show_json
from lakemark.cli.pairs import parse_pairs
from lakemark.cli.tables import Name
from lakemark.client.model import Operation
from lakemark.parquet.adoption import adopt_files

Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", "-m", metavar="KEY=VALUE", help="metadata to keep with the version; may be repeated"),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        help="commit only once for this id, however often the command is run; the service keeps ids for a day"
    ),
]


class Overwrite(StrEnum):
    PARTITIONS = "partitions"
    TABLE = "table"


@dataclass(frozen=True)
class Work:
    """Files for one table. ``partition`` {}: the partitions are in their paths."""

    table: str
    files: Sequence[Path]
    partition: Mapping[str, str] = field(default_factory=dict)
    overwrite: Overwrite | None = None
    branch: str = ""

    def begin(self, client: Client, request_id: str | None) -> Writer:
        operation: Operation = "append"
        if self.overwrite is not None:
            operation = "overwrite_table" if self.overwrite is Overwrite.TABLE else "overwrite_partitions"
        start = self.overwrite is not Overwrite.PARTITIONS
        return client.begin(self.table, operation, start=start, request_id=request_id, branch=self.branch)

    def stage(self, writer: Writer) -> None:
        adopted = adopt_files(self.files, writer, self.partition)
        if self.overwrite is Overwrite.PARTITIONS:
            writer.start(list(dict.fromkeys(file.partition for file in adopted.files)))
        writer.stage(adopted.files, file_schema=adopted.schema)


def commit(
    context: typer.Context,
    table: Name,
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="local parquet files")],
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            metavar="COLUMN=VALUE",
            help="partition of all files; give it once for each partition column",
        ),
    ] = None,
    overwrite: Annotated[
        Overwrite | None, typer.Option(help="replace the partitions that the files are in, or the whole table")
    ] = None,
    metadata: Metadata = None,
    request_id: RequestId = None,
    branch: Annotated[str, typer.Option(help="the branch; default: main")] = "",
) -> None:
    """Copies existing parquet files into a table, as one commit.

    The partition of a file is given by --partition, or by its path (…/month=1/file.parquet).
    """
    call = invocation(context)
    pairs = parse_pairs(metadata, "metadata")
    work = Work(table, files, parse_pairs(partition, "partition"), overwrite, branch)
    with call.client() as client, work.begin(client, request_id) as writer:
        if not writer.committed:
            work.stage(writer)
        done = writer.commit(metadata=pairs)
    call.tell(done, f"version {done.version} of {table} (instant {done.instant})")


def commit_together(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", exists=True, dir_okay=False, help="a JSON file")],
    metadata: Metadata = None,
    request_id: RequestId = None,
) -> None:
    """Copies existing parquet files into several tables in one transaction: all tables get a version, or none.

    PLAN is a list: [{"table": "db.orders", "files": ["a.parquet"]}, …]. Each item may also have "partition":
    {"month": "1"}, "overwrite": "partitions" or "table", and "branch".
    """
    call = invocation(context)
    pairs = parse_pairs(metadata, "metadata")
    works = _parse_plan(plan.read_text())
    with call.client() as client, ExitStack() as opened:
        writers = [
            opened.enter_context(work.begin(client, request_id and f"{request_id}/{place}"))
            for place, work in enumerate(works)
        ]
        if all(writer.committed for writer in writers):
            done = [writer.commit() for writer in writers]
        else:
            for work, writer in zip(works, writers, strict=True):
                work.stage(writer)
            done = client.commit_together(writers, metadata=pairs)
    _show(call.as_json, works, done)


def _show(as_json: bool, works: Sequence[Work], done: Sequence[Commit]) -> None:
    if as_json:
        show_json(
            [
                {"table": work.table, "branch": work.branch or "main", "commit": commit}
                for work, commit in zip(works, done, strict=True)
            ]
        )
        return
    for work, commit in zip(works, done, strict=True):
        where = f"{work.table}@{work.branch}" if work.branch else work.table
        show_done(f"version {commit.version} of {where} (instant {commit.instant})")


def _parse_plan(text: str) -> list[Work]:
    """The work in a plan. Raises a usage error that says what is wrong with the plan."""
    try:
        plan = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"the plan is not JSON: {error}") from None
    if not isinstance(plan, list) or not plan:
        raise typer.BadParameter('the plan is a list: [{"table": "db.orders", "files": ["a.parquet"]}, …]')
    return [_parse_work(place, item) for place, item in enumerate(plan, 1)]


def _parse_work(place: int, item: Any) -> Work:
    def wrong(what: str) -> typer.BadParameter:
        return typer.BadParameter(f"item {place} of the plan: {what}")

    if not isinstance(item, dict) or not isinstance(item.get("table"), str):
        raise wrong('it is an object with "table", "files" and perhaps "partition", "overwrite", "branch"')
    unknown = item.keys() - {"table", "files", "partition", "overwrite", "branch"}
    if unknown:
        raise wrong(f"{', '.join(sorted(map(repr, unknown)))} is not known here")
    files, partition = item.get("files"), item.get("partition", {})
    if not isinstance(files, list) or not files or not all(isinstance(file, str) for file in files):
        raise wrong('"files" is a list of paths')
    missing = [file for file in files if not Path(file).is_file()]
    if missing:
        raise wrong(f"{missing[0]!r} is not a file")
    if not isinstance(partition, dict):
        raise wrong('"partition" is an object: {"month": "1"}')
    overwrite = item.get("overwrite")
    if overwrite is not None and overwrite not in list(Overwrite):
        raise wrong(f'"overwrite" is one of {", ".join(Overwrite)}')
    return Work(
        item["table"],
        [Path(file) for file in files],
        {name: str(value) for name, value in partition.items()},
        None if overwrite is None else Overwrite(overwrite),
        str(item.get("branch", "")),
    )
