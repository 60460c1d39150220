"""The schemas of a table, and changes of its schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from lakemark.arguments import Count, checked
from lakemark.client.calls import Calls
from lakemark.client.model import SchemaVersion, Table, schema_version_from, table_from
from lakemark.client.names import parse_columns, parse_table_name
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
from lakemark_core.evolution.messages import change_to_proto
from lakemark_core.evolution.paths import format_path, parse_path
from lakemark_core.evolution.statements import parse_changes
from lakemark_core.types import Field, Type, parse_type
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub


@checked
class TableSchemas:
    """The part of ``client.tables`` that changes schemas (docs/schemas.md). Each change is a version of the table.

    Columns are named by paths: ``fare``, ``address.city``, ``points.element.x``, ``prices.value``. A name with dots is
    put in backquotes. Methods that change a schema raise InvalidSchema with the reason if the change is not legal.
    """

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = CatalogServiceStub(calls.channel)

    def alter(
        self, name: str, changes: Sequence[SchemaChange] | str, *, expected_schema_id: Count = 0, dry_run: bool = False
    ) -> Table:
        """Makes all changes in their order, or none. Returns the table with its new schema.

        ``changes`` are objects of ``lakemark.evolution``, or what follows ALTER TABLE in SQL, separated by semicolons:
        ``"ADD COLUMN tip DOUBLE AFTER fare; DROP COLUMN x"``.

        ``expected_schema_id``: only if that is the latest schema; 0: any. ``dry_run``: changes nothing, and returns the
        table as it would be. Raises InvalidSchema with every change that is refused and why, FailedPrecondition
        (another schema than expected).
        """
        parsed = parse_changes(changes) if isinstance(changes, str) else changes
        request = pb.AlterSchemaRequest(
            name=parse_table_name(name),
            changes=[change_to_proto(change) for change in parsed],
            expected_schema_id=expected_schema_id,
            dry_run=dry_run,
            request_id=str(uuid4()),
        )
        return table_from(self._call(self._stub.AlterSchema, request, mutation=True))

    def schemas(self, name: str) -> list[SchemaVersion]:
        """All schemas that the table has had, the latest last."""
        answer = self._call(self._stub.ListSchemas, pb.ListSchemasRequest(name=parse_table_name(name)))
        return [schema_version_from(message) for message in answer.schemas]

    def add_column(
        self, name: str, column: str | Field, *, parent: str = "", first: bool = False, after: str = ""
    ) -> Table:
        """Adds a column, which is null in existing rows. ``column`` as in SQL: ``"tip decimal(8,2) COMMENT 'text'"``.

        ``parent``, or a path before the name (``"address.zip string"``), is the struct that gets it as a field. It
        comes last, unless it is ``first`` or ``after`` a sibling.
        """
        return self.alter(name, [added_column(column, parent, first=first, after=after)])

    def drop_column(self, name: str, column: str) -> Table:
        """Drops a column. Older versions keep its values."""
        return self.alter(name, [DropColumn(column)])

    def rename_column(self, name: str, column: str, new_name: str) -> Table:
        """Renames a column. ``new_name`` has no path."""
        return self.alter(name, [RenameColumn(column, new_name)])

    def widen_column(self, name: str, column: str, new_type: str | Type) -> Table:
        """Changes a column to a type that holds every value of the old one: ``"bigint"`` for an int."""
        return self.alter(name, [WidenColumn(column, parse_type(new_type) if isinstance(new_type, str) else new_type)])

    def move_column(self, name: str, column: str, *, first: bool = False, after: str = "") -> Table:
        """Moves a column among its siblings. Partition columns stay where they are."""
        return self.alter(name, [MoveColumn(column, first, after)])

    def comment_column(self, name: str, column: str, comment: str) -> Table:
        """Sets the comment of a column; "" removes it."""
        return self.alter(name, [CommentColumn(column, comment)])

    def relax_column(self, name: str, column: str) -> Table:
        """Allows nulls in a NOT NULL column. This cannot be undone."""
        return self.alter(name, [RelaxColumn(column)])


def added_column(column: str | Field, parent: str = "", *, first: bool = False, after: str = "") -> AddColumn:
    """The change that adds one column, written as in SQL. A path before its name continues ``parent``. Raises
    InvalidSchema."""
    if isinstance(column, Field):
        return AddColumn(column, parent, first, after)
    columns = parse_columns(column).columns
    if len(columns) != 1:
        raise InvalidSchema(f"{column!r} is not one column; write for instance 'tip double', one at a time")
    quoted = column.lstrip().startswith("`")
    *path, name = [columns[0].name] if quoted else parse_path(columns[0].name)
    above = ".".join(filter(None, [parent, format_path(path)]))
    return AddColumn(replace(columns[0], name=name), above, first, after)
