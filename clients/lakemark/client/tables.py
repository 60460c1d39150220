"""Tables: definition, properties, names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from lakemark.arguments import checked
from lakemark.client.drops import TableDrops
from lakemark.client.model import Table, TableSummary, table_from
from lakemark.client.names import Columns, parse_columns, parse_table_name
from lakemark.client.schemas import TableSchemas
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.types import schema_to_proto
from lakemark_proto.v1 import catalog_pb2 as pb

_KINDS = {"": pb.TABLE_KIND_UNSPECIFIED, "lake": pb.LAKE, "warehouse": pb.WAREHOUSE}


@checked
class Tables(TableSchemas, TableDrops):
    """``client.tables``. Tables are named ``database.table``."""

    def create(
        self,
        name: str,
        columns: Columns,
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        location: str = "",
        comment: str = "",
        owner: str = "",
        if_not_exists: bool = False,
    ) -> Table:
        """Creates a lake table. ``columns`` include the partition columns; ``location`` "": below the database's.

        Raises AlreadyExists, DatabaseNotFound, InvalidName, InvalidSchema, InvalidArgument.
        """
        request = pb.CreateTableRequest(
            name=parse_table_name(name),
            schema=schema_to_proto(parse_columns(columns, tuple(partitioned_by))),
            location=location,
            properties=properties,
            owner=owner,
            comment=comment,
            if_not_exists=if_not_exists,
            request_id=str(uuid4()),
        )
        return table_from(self._call(self._stub.CreateTable, request, mutation=True))

    def get(self, name: str) -> Table:
        """The table with this name. Raises DatabaseNotFound, TableNotFound."""
        return table_from(self._call(self._stub.GetTable, pb.GetTableRequest(name=parse_table_name(name))))

    def list(self, database: str, *, kind: str = "") -> list[TableSummary]:
        """The tables of a database in order of name. ``kind``: only "lake" or only "warehouse". Raises
        DatabaseNotFound."""
        if kind not in _KINDS:
            raise InvalidArgument(f"kind {kind!r} is not 'lake' or 'warehouse'")
        return list(self._summaries(database, kind))

    def rename(self, name: str, new_name: str) -> Table:
        """Renames a table; its data stays where it is.

        ``new_name`` is ``table`` or ``database.table``. Raises AlreadyExists.
        """
        database, _, table = new_name.rpartition(".")
        request = pb.RenameTableRequest(
            name=parse_table_name(name), new_database=database, new_name=table, request_id=str(uuid4())
        )
        return table_from(self._call(self._stub.RenameTable, request, mutation=True))

    def set_properties(
        self, name: str, properties: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()
    ) -> Table:
        """Sets and removes properties.

        Raises InvalidArgument for a ``lakemark.`` property that is not known or has an illegal value.
        """
        request = pb.SetTablePropertiesRequest(
            name=parse_table_name(name), set=properties, remove=remove, request_id=str(uuid4())
        )
        return table_from(self._call(self._stub.SetTableProperties, request, mutation=True))

    def _summaries(self, database: str, kind: str) -> Iterator[TableSummary]:
        token = ""
        while True:
            request = pb.ListTablesRequest(database=database, kind=_KINDS[kind], page_token=token)
            answer = self._call(self._stub.ListTables, request)
            for table in answer.tables:
                yield TableSummary(table.name, pb.TableKind.Name(table.kind).lower(), table.hive_type)
            token = answer.next_page_token
            if not token:
                return
