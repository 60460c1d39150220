"""Lake tables by Spark's own DDL: CREATE TABLE with ``lakemark.type`` = ``lake``; ALTER; DROP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, InvalidSchema, UnsupportedOperation
from lakemark_core.evolution import SchemaChange
from lakemark_core.evolution.statements import parse_changes
from lakemark_core.types import Field, Schema, parse_type
from lakemark_hms.facet import is_hidden, lake_write_error
from lakemark_hms.lake.tables import SCHEMA_PARAMETER, VERSION_PARAMETER
from lakemark_hms.lake_intent import files_left
from lakemark_hms.lake_schema import changes_between
from lakemark_hms.objects import EXTERNAL, MANAGED, partition_columns, sent_location, table_type
from lakemark_hms.services import NamedTable, Services
from lakemark_hms.spark_schema import spark_columns
from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_server.catalog import directories
from lakemark_server.catalog.engine_names import own_properties
from lakemark_server.catalog.lake import check_properties
from lakemark_server.catalog.names import legal_name
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_thrift.ttypes import StorageDescriptor, Table

_PARQUET_INPUTS: Final = ("mapredparquetinputformat", "parquetinputformat", "deprecatedparquetinputformat")
_PROVIDER: Final = "spark.sql.sources.provider"
_BUCKETS: Final = "spark.sql.sources.schema.numBuckets"
_COMMENT: Final = "comment"
# What Spark sends instead of the columns when it repeats an ALTER that failed.
_NO_COLUMNS: Final[list[tuple[str, str | None, str]]] = [("col", "array<string>", "from deserializer")]
ALTER_PROPERTY: Final = "lakemark.alter"


class LakeDdl:
    """Thread-safe."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._catalog = services.catalog

    def create(self, database: DatabaseRecord, table: Table) -> None:
        """Raises AlreadyExists, InvalidName, InvalidSchema, InvalidArgument, UnsupportedOperation."""
        label = f"{database.name}.{table.tableName}"
        _check_format(table, label)
        legal_name("table", table.tableName or "")
        parameters = table.parameters or {}
        location = sent_location(table)
        default = storage.join(database.location, (table.tableName or "").lower())
        # Spark sends the default place itself; only another one was chosen by the user.
        in_default = storage.is_same_place(location, default) and table_type(table) != EXTERNAL
        chosen = "" if in_default else location
        if not storage.is_empty(chosen or default):
            raise UnsupportedOperation(
                f"{label}: a lake table begins without files, so CREATE TABLE … AS SELECT is not possible; "
                f"{files_left(chosen or default)}. Then create the table, and write it by INSERT INTO "
                f"{table.tableName}__append (docs/sql-writes.md)",
                table=label,
                location=chosen or default,
            )
        record = LakeTableRecord(
            catalog=database.catalog,
            database=database.name,
            name=table.tableName or "",
            location=chosen,
            properties=_own(parameters),
            owner=table.owner or "",
            comment=parameters.get(_COMMENT, ""),
        )
        self._catalog.create_lake_table(record, lake_schema(table))

    def alter(self, named: NamedTable, new: Table) -> None:
        """Changes columns, properties and the name. Anything else is refused with the reason.

        Columns change as the client's list says, or by the property ``lakemark.alter`` (docs/schemas.md), which is not
        kept. Raises InvalidSchema, InvalidArgument, FailedPrecondition (others changed the columns meanwhile).
        """
        if is_hidden(named.name):
            raise lake_write_error(named.database.name, named.name)
        if self._services.lake is not None and not self._services.lake.alterable:
            raise UnsupportedOperation(
                f"{named.database.name}.{named.name} is a lake table: on this port it is not what it is, but what "
                "engines can read; alter it through Spark on the port of hms_port, or by the command line "
                "(lakemark tables …)",
                table=f"{named.database.name}.{named.name}",
            )
        old = self._seen(named, new)
        label = f"{named.database.name}.{named.name}"
        before, after = _own(old.parameters or {}), _own(new.parameters or {})
        # First, because Spark repeats an ALTER that failed without columns, and shows only the error of that.
        statements = parse_changes(after.pop(ALTER_PROPERTY)) if ALTER_PROPERTY in after else []
        check_properties(after)
        _check_same(old, new, label)
        self._alter_columns(named, old, new, statements)
        for parameters, own in ((old.parameters or {}, before), (new.parameters or {}, after)):
            if parameters.get(_COMMENT):
                own[_COMMENT] = parameters[_COMMENT]
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        removed = before.keys() - after.keys()
        if changed or removed:
            self._catalog.set_properties(named.database.catalog, named.database.name, named.name, changed, removed)
        new_name = ((new.dbName or named.database.name).lower(), (new.tableName or named.name).lower())
        if new_name != (named.database.name, named.name):
            self._catalog.rename_lake_table(named.database.catalog, named.database.name, named.name, *new_name)

    def _seen(self, named: NamedTable, new: Table) -> Table:
        """The table as the client read it before it asked for the change. Others may have committed since."""
        version = (new.parameters or {}).get(VERSION_PARAMETER, "")
        if self._services.lake is not None and version.isdecimal():
            try:
                struct = self._services.lake.get_table(named.database, f"{named.name}@v{version}")
            except InvalidArgument:  # there was no such version
                struct = None
            if struct is not None:
                return decode_struct(Table, struct)
        return decode_struct(Table, self._services.table_struct(named))

    def _alter_columns(self, named: NamedTable, old: Table, new: Table, statements: Sequence[SchemaChange]) -> None:
        table = self._catalog.get_lake_table(named.database.catalog, named.database.name, named.name)
        seen = int((old.parameters or {}).get(SCHEMA_PARAMETER, "0"))
        changes: list[SchemaChange] = []
        given = _given_columns(old, new)
        if given is not None:
            schemas = {one.schema.schema_id: one.schema for one in self._catalog.schemas(table)}
            columns, nulls_known = given
            changes = changes_between(schemas.get(seen, table.schema), columns, nulls_known=nulls_known)
        if changes or statements:
            # The list of columns was made from those that the client saw, so it would undo another change in between.
            expected = seen if changes else 0
            self._services.timeline.alter_schema(table.table_id, AlterJob((*changes, *statements), expected))

    def drop(self, named: NamedTable, *, delete_data: bool, now: bool) -> None:
        """Drops the table, which can be restored for a while unless ``now`` (``DROP TABLE … PURGE``).

        Raises UnsupportedOperation for names of snapshots, which are not tables of their own.
        """
        if named.door is not None:
            raise UnsupportedOperation(
                f"{named.door.label} is a door into lake table {named.door.table.name}, which cannot be dropped"
            )
        if named.entry is None:
            raise UnsupportedOperation(
                f"{named.database.name}.{named.name} names a snapshot of a lake table, which cannot be dropped"
            )
        with directories.leaving_files():
            self._catalog.dropped.drop(
                named.database.catalog, named.database.name, named.name, delete_files=delete_data, now=now
            )


def lake_schema(table: Table) -> Schema:
    """The schema in Spark's own record of the columns if there is one, else in Hive's. Raises InvalidSchema."""
    keys = [name for name, _ in partition_columns(table)]
    columns = spark_columns(table.parameters or {})
    if columns is None:
        hive = [*((table.sd.cols if table.sd is not None else None) or ()), *(table.partitionKeys or ())]
        columns = [
            Field(0, column.name or "", parse_type(column.type or ""), comment=column.comment or "") for column in hive
        ]
    elif not keys:
        keys = _spark_partition_columns(table.parameters or {})
    if not columns:
        raise InvalidSchema(f"lake table {table.tableName!r} has no columns")
    return Schema.build(columns, keys)


def _spark_partition_columns(parameters: Mapping[str, str]) -> list[str]:
    count = int(parameters.get("spark.sql.sources.schema.numPartCols", "0"))
    return [parameters[f"spark.sql.sources.schema.partCol.{at}"] for at in range(count)]


def _check_format(table: Table, label: str) -> None:
    descriptor = table.sd or StorageDescriptor()
    if table_type(table) not in (MANAGED, EXTERNAL):
        raise InvalidArgument(f"{label}: a view cannot be a lake table")
    parameters = table.parameters or {}
    provider = parameters.get(_PROVIDER, "").lower()
    input_format = (descriptor.inputFormat or "").rpartition(".")[2].lower()
    if provider not in ("", "parquet", "hive") or (provider != "parquet" and input_format not in _PARQUET_INPUTS):
        what = provider if provider not in ("", "hive") else descriptor.inputFormat
        raise InvalidArgument(
            f"{label}: lake tables are stored as parquet, not as {what}; write USING parquet or STORED AS PARQUET"
        )
    if (descriptor.bucketCols or (descriptor.numBuckets or 0) > 0) or parameters.get(_BUCKETS, "0") != "0":
        raise InvalidArgument(f"{label}: lake tables cannot be bucketed by CLUSTERED BY")
    skewed = descriptor.skewedInfo
    if descriptor.sortCols or (skewed is not None and skewed.skewedColNames):
        raise InvalidArgument(f"{label}: lake tables cannot be SORTED BY or SKEWED BY")


def _own(parameters: Mapping[str, str]) -> dict[str, str]:
    """The user's own properties, without the comment."""
    return {name: value for name, value in own_properties(parameters).items() if name != _COMMENT}


def _check_same(old: Table, new: Table, label: str) -> None:
    def reject(what: str) -> None:
        raise UnsupportedOperation(
            f"{label} is a lake table: ALTER can change its columns, its properties and its name, not {what}; "
            "see docs/lake-tables.md",
            table=label,
        )

    if table_type(new) != table_type(old):
        reject("its type")
    if (new.viewOriginalText or "") != (old.viewOriginalText or ""):
        reject("its text: it is no view, it only looks like one to Spark")
    if partition_columns(new) != partition_columns(old):
        reject("its partition columns")
    if new.sd is not None and old.sd is not None and sent_location(new) != sent_location(old):
        reject("its location")


def _given_columns(old: Table, new: Table) -> tuple[list[Field], bool] | None:
    """The columns that the client wants, and whether it says which may be null; None if it does not change them."""
    wanted = spark_columns(new.parameters or {})
    if wanted is not None and wanted != spark_columns(old.parameters or {}):
        return wanted, True
    if new.sd is None or _columns(new) in (_columns(old), _NO_COLUMNS):
        return None
    columns = new.sd.cols or ()
    return [Field(0, one.name or "", parse_type(one.type or ""), comment=one.comment or "") for one in columns], False


def _columns(table: Table) -> list[tuple[str, str | None, str]]:
    columns = (table.sd.cols if table.sd is not None else None) or ()
    return [((column.name or "").lower(), column.type, column.comment or "") for column in columns]
