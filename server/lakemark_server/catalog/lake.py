"""Lake tables: their definitions and schemas, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lakemark_core import file_layout, optimization, partition_ttl, table_kind
from lakemark_core.errors import CorruptStore, InvalidArgument, TableNotFound, UnsupportedOperation
from lakemark_core.messages.types import schema_from_proto, schema_to_proto
from lakemark_core.table_kind import TableKind, kind_of
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import Holder, LakeTableRecord, TableEntry
from lakemark_proto.v1 import catalog_pb2, types_pb2
from lakemark_server.catalog import clean_schedule, drop_policy, tables
from lakemark_server.kv import ReadTransaction, Transaction, blob
from lakemark_server.ownership import Holding, places
from lakemark_server.store.keyspace import LAKE_TABLES, SCHEMAS

TYPE_PROPERTY: Final = "lakemark.type"
POLICY_PROPERTY: Final = "lakemark.conflict.policy"
POLICIES: Final[Mapping[str, catalog_pb2.ConflictPolicy.ValueType]] = {
    "table": catalog_pb2.CONFLICT_TABLE,
    "partition": catalog_pb2.CONFLICT_PARTITION,
    "file_group": catalog_pb2.CONFLICT_FILE_GROUP,
    "file": catalog_pb2.CONFLICT_FILE,
    "column": catalog_pb2.CONFLICT_COLUMN,
    "row": catalog_pb2.CONFLICT_ROW,
}
PREFERENCE_PROPERTY: Final = "lakemark.clustering.preference"
PREFERENCES: Final = ("writer", "clustering")
PROPERTIES: Final = (
    TYPE_PROPERTY,
    POLICY_PROPERTY,
    PREFERENCE_PROPERTY,
    clean_schedule.KEEP_PROPERTY,
    clean_schedule.AGE_PROPERTY,
    drop_policy.RETAIN_PROPERTY,
    drop_policy.PROTECTED_PROPERTY,
    *table_kind.PROPERTIES,
    *file_layout.PROPERTIES,
    *optimization.PROPERTIES,
    *partition_ttl.PROPERTIES,
)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A lake table as one transaction saw it."""

    record: LakeTableRecord
    schema: Schema

    @property
    def table_id(self) -> int:
        return self.record.table_id

    @property
    def name(self) -> str:
        return f"{self.record.database}.{self.record.name}"

    @property
    def column_names(self) -> dict[int, str]:
        """Names of the columns by column id, for messages."""
        return {column.id: column.name for column in self.schema.columns}

    @property
    def policy(self) -> str:
        return policy_of(self.record.properties)

    @property
    def kind(self) -> TableKind:
        record = self.record
        if table_kind.KEY_PROPERTY not in record.properties:
            return TableKind()
        return kind_of(record.properties, record.bucket_directory)

    @property
    def clustering_preference(self) -> str:
        return preference_of(self.record.properties)


def policy_of(properties: Mapping[str, str]) -> str:
    """The conflict policy that the properties ask for, in lower case; it need not be legal."""
    return properties.get(POLICY_PROPERTY, "partition").strip().lower()


def preference_of(properties: Mapping[str, str]) -> str:
    """Who wins against clustering, in lower case; it need not be legal."""
    return properties.get(PREFERENCE_PROPERTY, PREFERENCES[0]).strip().lower()


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises InvalidArgument for a ``lakemark.`` property that is not known or has an illegal value."""
    check_names(properties)
    kind = properties.get(TYPE_PROPERTY, "lake")
    if kind.strip().lower() != "lake":
        raise InvalidArgument(
            f"{TYPE_PROPERTY} = {kind!r} is not a type of table: the only one is 'lake'. A table that is created "
            "through the Hive Metastore protocol without the property is a warehouse table"
        )
    policy = policy_of(properties)
    if policy not in POLICIES:
        raise InvalidArgument(f"{POLICY_PROPERTY} = {policy!r} is not a policy; use {', '.join(POLICIES)}")
    preference = preference_of(properties)
    if preference not in PREFERENCES:
        raise InvalidArgument(f"{PREFERENCE_PROPERTY} = {preference!r} is not known; use {' or '.join(PREFERENCES)}")
    clean_schedule.retention_of(properties)
    drop_policy.check(properties)
    kind_of(properties)
    file_layout.layout_of(properties)
    optimization.policy_of(properties)
    partition_ttl.ttl_of(properties)


def check_columns(properties: Mapping[str, str], schema: Schema) -> None:
    """Raises InvalidArgument for legal properties that name columns which a table of this schema cannot use so."""
    file_layout.layout_of(properties).fields(schema)
    ttl = partition_ttl.ttl_of(properties)
    if ttl is not None:
        ttl.check(schema)


def check_names(properties: Iterable[str]) -> None:
    """Raises InvalidArgument for an unknown name that begins with ``lakemark.``."""
    for name in properties:
        if name.lower().startswith("lakemark.") and name not in PROPERTIES:
            raise InvalidArgument(
                f"property {name!r} is not known; those that begin with 'lakemark.' are: {', '.join(PROPERTIES)}"
            )


def put(tx: Transaction, record: LakeTableRecord) -> None:
    """Writes the record of a table."""
    blob.put(tx, LAKE_TABLES.space(record.table_id), record.SerializeToString())


def put_schema(tx: Transaction, table_id: int, schema: Schema) -> None:
    """Writes a schema under its id."""
    blob.put(tx, SCHEMAS.space(table_id, schema.schema_id), schema_to_proto(schema).SerializeToString())


def holding(record: LakeTableRecord) -> Holding:
    """What the table holds: the directory that it lives in, from which cleaning deletes files."""
    return places.holding(
        record.location,
        Holder.LAKE_TABLE,
        record.table_id,
        f"{record.database}.{record.name}",
        owns=True,
        dropped=record.HasField("dropped"),
    )


def get_record(tx: ReadTransaction, table_id: int, *, or_dropped: bool = False) -> LakeTableRecord:
    """``or_dropped``: even if the table was dropped and can be brought back. Raises TableNotFound if it was dropped."""
    stored = blob.get(tx, LAKE_TABLES.space(table_id))
    record = None if stored is None else LakeTableRecord.FromString(stored)
    if record is None or (record.HasField("dropped") and not or_dropped):
        raise TableNotFound(f"table id {table_id} was dropped", table_id=str(table_id))
    return record


def get_schema(tx: ReadTransaction, table_id: int, schema_id: int) -> Schema:
    """The schema with this id. Raises CorruptStore if it is missing."""
    stored = blob.get(tx, SCHEMAS.space(table_id, schema_id))
    if stored is None:
        raise CorruptStore(f"schema {schema_id} of table id {table_id} is missing")
    return _parse_schema(stored)


@lru_cache(maxsize=512)
def _parse_schema(stored: bytes) -> Schema:
    return schema_from_proto(types_pb2.Schema.FromString(stored))


def load(tx: ReadTransaction, table_id: int, *, or_dropped: bool = False) -> LakeTable:
    """Raises TableNotFound, as ``get_record``."""
    record = get_record(tx, table_id, or_dropped=or_dropped)
    return LakeTable(record, get_schema(tx, table_id, record.schema_id))


def get(tx: ReadTransaction, catalog: str, database: str, name: str) -> LakeTable:
    """Raises DatabaseNotFound, TableNotFound, and UnsupportedOperation if it is a warehouse table."""
    _, entry = tables.get(tx, catalog, database, name)
    require_lake(entry, database, name)
    return load(tx, entry.table_id)


def require_lake(entry: TableEntry, database: str, name: str) -> None:
    """Raises UnsupportedOperation for a warehouse table."""
    if entry.kind != catalog_pb2.LAKE:
        raise UnsupportedOperation(
            f"{database}.{name} is a warehouse (Hive) table, which has no timeline; only lake tables have one "
            f"(created with TBLPROPERTIES ('{TYPE_PROPERTY}'='lake') or by this service)",
            table=f"{database}.{name}",
        )
