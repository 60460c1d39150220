"""Lake tables: their definitions and schemas, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lakemark_core import table_kind
from lakemark_core.errors import AlreadyExists, CorruptStore, InvalidArgument, TableNotFound, UnsupportedOperation
from lakemark_core.messages.types import schema_from_proto, schema_to_proto
from lakemark_core.storage import spellings
from lakemark_core.table_kind import TableKind, kind_of
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, TableEntry
from lakemark_proto.v1 import catalog_pb2, types_pb2
from lakemark_server.catalog import clean_schedule, drop_policy, tables
from lakemark_server.kv import ReadTransaction, Space, Transaction, blob, strinc
from lakemark_server.store.keyspace import DELETING, LAKE_TABLES, LOCATIONS, SCHEMAS

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
        properties = self.record.properties
        return kind_of(properties) if table_kind.KEY_PROPERTY in properties else TableKind()

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
            f"{TYPE_PROPERTY} = {kind!r} is no type of table: the only one is 'lake'; tables without the property that "
            "are made through the Hive Metastore protocol are warehouse tables"
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


def take_location(tx: Transaction, record: LakeTableRecord) -> None:
    """Notes where the table lives. Raises AlreadyExists: tables in one directory would delete each other's files."""
    _require_not_deleted(tx, record.location)
    if _has_any(tx, LOCATIONS, [record.location]):
        raise AlreadyExists(f"another lake table lives at {record.location}; choose a directory of its own")
    tx.set(LOCATIONS.key(record.location), record.table_id.to_bytes(8, "big"))


def is_inhabited(tx: ReadTransaction, location: str) -> bool:
    """Whether a lake table lives there or in a directory below, even a dropped one that can be brought back."""
    # Without the byte that ends the text.
    below = [LOCATIONS.key(spelling + "/")[:-1] for spelling in spellings(location)]
    return _has_any(tx, LOCATIONS, [location]) or any(tx.get_range(begin, strinc(begin), limit=1) for begin in below)


def shares_directory(tx: ReadTransaction, location: str) -> bool:
    """Whether files of a lake table may lie in that directory: one lives there, or in a directory below or above."""
    return is_inhabited(tx, location) or _has_any(tx, LOCATIONS, _places_above(location))


def leave_location(tx: Transaction, record: LakeTableRecord) -> None:
    """Frees the table's location for another table."""
    tx.clear(LOCATIONS.key(record.location))


def begin_deletion(tx: Transaction, location: str, now_ms: int) -> None:
    """Keeps tables from being created there or below until ``end_deletion``: their files would be deleted, too."""
    tx.set(DELETING.key(location), now_ms.to_bytes(8, "big"))


def end_deletion(tx: Transaction, location: str) -> None:
    """Ends what ``begin_deletion`` began."""
    tx.clear(DELETING.key(location))


def is_being_deleted(tx: ReadTransaction, location: str) -> bool:
    """Whether files at this location are still being deleted."""
    return _has_any(tx, DELETING, [location])


def deletions(tx: ReadTransaction, before_ms: int, limit: int) -> list[str]:
    """Locations whose deletion began before that time and was cut off."""
    pairs = tx.get_range(*DELETING.range(), limit=limit, snapshot=True)
    return [str(DELETING.unpack(key)[-1]) for key, since in pairs if int.from_bytes(since, "big") < before_ms]


def _places_above(location: str) -> list[str]:
    """The location and the directories above it, except the root (or the bucket)."""
    place, places = location, []
    while "/" in place.partition(":")[2].strip("/"):
        places.append(place)
        place = place.rpartition("/")[0]
    return places


def _require_not_deleted(tx: ReadTransaction, location: str) -> None:
    places = _places_above(location)
    for place in places if _has_any(tx, DELETING, places) else ():
        if _has_any(tx, DELETING, [place]):
            raise AlreadyExists(f"{place} is still being deleted after a table was dropped; try again in a moment")


def _has_any(tx: ReadTransaction, space: Space, places: Iterable[str]) -> bool:
    """Whether the space has one of the places. Stores of earlier builds have some under ``s3a:`` and ``s3n:``."""
    keys = [space.key(spelling) for place in places for spelling in spellings(place)]
    return any(value is not None for value in tx.get_many(keys))


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
