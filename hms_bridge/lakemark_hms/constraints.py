"""Converts constraints between Thrift structs, of which each has one column, and the records of the catalog.

Hive's checks of new constraints are here, too: they need the columns of tables, which the catalog does not read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.objects import TableNames, columns_of, names_of
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.cut import I32, STRING, Cut, patch
from lakemark_hms.wire.splice import i32_value, string_value
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord, HiveTableRecord
from lakemark_server.catalog.constraints import Decision, ForeignKey, Surroundings
from lakemark_server.catalog.events import NewConstraint
from lakemark_server.catalog.names import constraint_name
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_thrift.ttypes import (
    SQLCheckConstraint,
    SQLDefaultConstraint,
    SQLForeignKey,
    SQLNotNullConstraint,
    SQLPrimaryKey,
    SQLUniqueConstraint,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of constraint: the fields of its Thrift struct by name and number, and how a name is made up."""

    kind: ConstraintRecord.Kind.ValueType
    struct: type[Any]
    database: tuple[str, int]
    table: tuple[str, int]
    column: tuple[str, int]
    name: tuple[str, int]
    catalog: int
    prefix: str
    sequence: tuple[str, int] | None = None


def _kind(
    kind: ConstraintRecord.Kind.ValueType, struct: type[Any], name: tuple[str, int], prefix: str, sequence: int = 0
) -> Kind:
    """Of the kinds that have their catalog first."""
    return Kind(
        kind,
        struct,
        ("table_db", 2),
        ("table_name", 3),
        ("column_name", 4),
        name,
        1,
        prefix,
        ("key_seq", sequence) if sequence else None,
    )


PRIMARY_KEY: Final = Kind(
    ConstraintRecord.PRIMARY_KEY,
    SQLPrimaryKey,
    ("table_db", 1),
    ("table_name", 2),
    ("column_name", 3),
    ("pk_name", 5),
    9,
    "pk",
    ("key_seq", 4),
)
FOREIGN_KEY: Final = Kind(
    ConstraintRecord.FOREIGN_KEY,
    SQLForeignKey,
    ("fktable_db", 4),
    ("fktable_name", 5),
    ("fkcolumn_name", 6),
    ("fk_name", 10),
    15,
    "fk",
    ("key_seq", 7),
)
UNIQUE: Final = _kind(ConstraintRecord.UNIQUE, SQLUniqueConstraint, ("uk_name", 6), "uk", 5)
NOT_NULL: Final = _kind(ConstraintRecord.NOT_NULL, SQLNotNullConstraint, ("nn_name", 5), "nn")
DEFAULT: Final = _kind(ConstraintRecord.DEFAULT, SQLDefaultConstraint, ("dc_name", 6), "dc")
CHECK: Final = _kind(ConstraintRecord.CHECK, SQLCheckConstraint, ("dc_name", 6), "dc")

KINDS: Final = (PRIMARY_KEY, UNIQUE, FOREIGN_KEY, NOT_NULL, DEFAULT, CHECK)
"""Keys come before the foreign keys that may refer to them."""

_PARENT_DATABASE, _PARENT_TABLE, _PARENT_COLUMN, _PARENT_KEY = 1, 2, 3, 11

Sent = Sequence[tuple[Kind, Sequence[Cut[Any]]]]


def table_of(sent: Sequence[Cut[Any]], kind: Kind) -> tuple[DatabaseName, str]:
    """The table that constraints of a request belong to. Raises InvalidArgument unless it is one."""
    names = {
        (
            *database_name(getattr(one.value, kind.database[0]), one.value.catName),
            (getattr(one.value, kind.table[0]) or "").lower(),
        )
        for one in sent
    }
    if len(names) != 1:
        raise InvalidArgument(f"the constraints of a request must be of one table; these are of {len(names)}")
    catalog, database, table = names.pop()
    return DatabaseName(catalog, database), table


def decision(sent: Sent) -> Decision:
    """What checks the constraints of a request and makes their records, by the table as it is then."""

    def decide(around: Surroundings, table: HiveTable) -> list[NewConstraint]:
        made: list[NewConstraint] = []
        for kind, structs in sent:
            for one in _constraints(kind, structs):
                made.append(_record(around, table, kind, one, made))
        return made

    return decide


def _constraints(kind: Kind, structs: Sequence[Cut[Any]]) -> Iterator[list[Cut[Any]]]:
    """The structs of each constraint, one for each column of a key."""
    if kind is PRIMARY_KEY:
        if structs:
            yield list(structs)
        return
    current: list[Cut[Any]] = []
    for one in structs:
        begins = kind.sequence is None or getattr(one.value, kind.sequence[0]) == 1
        named = current and getattr(one.value, kind.name[0]) != getattr(current[0].value, kind.name[0])
        if current and (begins or named):
            yield current
            current = []
        current.append(one)
    if current:
        yield current


def _record(
    around: Surroundings, table: HiveTable, kind: Kind, structs: list[Cut[Any]], made: Sequence[NewConstraint]
) -> NewConstraint:
    own = columns_of(table.record.hive)
    columns = [(getattr(one.value, kind.column[0]) or "").lower() for one in structs]
    wanted = [column for column in columns if column or kind is not CHECK]
    _require_columns(table.label, own, wanted)
    name = next((text for one in structs if (text := getattr(one.value, kind.name[0]))), "")
    record = ConstraintRecord(
        kind=kind.kind,
        name=constraint_name(name if name.strip() else f"{kind.prefix}_{secrets.token_hex(8)}"),
        columns=wanted,
        hive=[one.raw for one in structs],
    )
    return NewConstraint(record, _refer(around, table, record, structs, made) if kind is FOREIGN_KEY else None)


def _refer(
    around: Surroundings,
    child: HiveTable,
    record: ConstraintRecord,
    structs: Sequence[Cut[SQLForeignKey]],
    made: Sequence[NewConstraint],
) -> HiveTable:
    """Notes and checks what a foreign key refers to: a key of its parent, with columns of the same types.

    Returns the parent.
    """
    parents = {_parent_names(one.value, child.database.catalog) for one in structs}
    if len(parents) != 1:
        raise InvalidArgument(
            f"foreign key {record.name} refers to {len(parents)} tables: all of its columns refer to one"
        )
    catalog, database, name = parents.pop()
    if catalog != child.database.catalog:
        raise InvalidArgument("Foreign keys cannot span catalogs")
    parent = around.table(database, name)
    columns = [(one.value.pkcolumn_name or "").lower() for one in structs]
    theirs = columns_of(parent.record.hive)
    _require_columns(parent.label, theirs, columns)
    known = [*around.constraints(parent), *(new.record for new in made if parent.table_id == child.table_id)]
    keys = [one for one in known if one.kind in (ConstraintRecord.PRIMARY_KEY, ConstraintRecord.UNIQUE)]
    if not keys:
        raise FailedPrecondition(
            f"foreign key {record.name} refers to {parent.label}, which has no primary key and no unique key"
        )
    if not any(list(one.columns) == columns for one in keys):
        raise FailedPrecondition(
            f"foreign key {record.name} refers to the columns [{', '.join(columns)}] of {parent.label}, which are none "
            f"of its keys: {'; '.join(', '.join(one.columns) for one in keys)}"
        )
    own = columns_of(child.record.hive)
    for column, theirs_name in zip(record.columns, columns, strict=True):
        if own[column] != theirs[theirs_name]:
            raise FailedPrecondition(
                f"foreign key {record.name}: {column} is {own[column]}, and {parent.label}.{theirs_name} is "
                f"{theirs[theirs_name]}"
            )
    if parent.table_id == child.table_id and list(record.columns) == columns:
        raise FailedPrecondition(f"foreign key {record.name} refers to itself: [{', '.join(columns)}]")
    record.parent_id = parent.table_id
    record.parent_columns.extend(columns)
    return parent


def _parent_names(sent: SQLForeignKey, catalog: str) -> TableNames:
    """The names that a client gives a foreign key's parent. ``catalog``: if it names none. Raises InvalidName."""
    database = database_name(sent.pktable_db, catalog)
    return TableNames(database.catalog, database.name, (sent.pktable_name or "").lower())


def _require_columns(label: str, known: Mapping[str, str], wanted: Sequence[str]) -> None:
    for column in wanted:
        if column not in known:
            raise InvalidArgument(f"Column not found: {label} has no column {column!r}")


# -- answers


def structs_of(kind: Kind, table: TableNames, record: ConstraintRecord) -> list[bytes]:
    """The serialized structs of a constraint, under the names that its table has now."""
    common = _named(kind, table, record.name)
    if not record.columns:
        return [patch(one, common) for one in record.hive]
    return [
        patch(one, common | {kind.column[1]: (STRING, string_value(column))} | _position(kind, at))
        for at, (one, column) in enumerate(zip(record.hive, record.columns, strict=True), 1)
    ]


def told_structs(
    kind: Kind, table: TableNames, record: ConstraintRecord, parent_database: str = "", parent_table: str = ""
) -> list[bytes]:
    """The serialized structs of a constraint that was added: those of a client, with names as the service has them.

    A foreign key's parent has the names that it had then. Events of earlier builds lack them: then they are those that
    the client gave it for the first column, which was all that was checked.
    """
    structs = structs_of(kind, table, record)
    if kind is not FOREIGN_KEY:
        return structs
    if not parent_table:
        _, parent_database, parent_table = _parent_names(decode_struct(SQLForeignKey, structs[0]), table.catalog)
    told = []
    for one, column in zip(structs, record.parent_columns, strict=True):
        names = {_PARENT_DATABASE: parent_database, _PARENT_TABLE: parent_table, _PARENT_COLUMN: column}
        told.append(patch(one, {number: (STRING, string_value(text)) for number, text in names.items()}))
    return told


def foreign_structs(key: ForeignKey, catalog: str) -> list[bytes]:
    """The serialized structs of a foreign key, under the names that both of its tables have now."""
    child, parent = _names(key.child, catalog), _names(key.parent, catalog)
    ends = _named(FOREIGN_KEY, child, key.record.name) | {
        _PARENT_DATABASE: (STRING, string_value(parent.database)),
        _PARENT_TABLE: (STRING, string_value(parent.table)),
        _PARENT_KEY: (STRING, string_value(key.parent_key)),
    }
    columns = zip(key.record.hive, key.record.columns, key.record.parent_columns, strict=True)
    return [
        patch(
            one,
            ends
            | {
                FOREIGN_KEY.column[1]: (STRING, string_value(own)),
                _PARENT_COLUMN: (STRING, string_value(theirs)),
            }
            | _position(FOREIGN_KEY, at),
        )
        for at, (one, own, theirs) in enumerate(columns, 1)
    ]


def decoded(kind: Kind, structs: Sequence[bytes]) -> list[Any]:
    """The structs as objects."""
    return [decode_struct(kind.struct, one) for one in structs]


def _names(record: HiveTableRecord, catalog: str) -> TableNames:
    return names_of(record.hive)._replace(catalog=catalog)


def _named(kind: Kind, table: TableNames, name: str) -> dict[int, tuple[int, bytes] | None]:
    return {
        kind.database[1]: (STRING, string_value(table.database)),
        kind.table[1]: (STRING, string_value(table.table)),
        kind.name[1]: (STRING, string_value(name)),
        kind.catalog: (STRING, string_value(table.catalog)),
    }


def _position(kind: Kind, at: int) -> dict[int, tuple[int, bytes] | None]:
    return {} if kind.sequence is None else {kind.sequence[1]: (I32, i32_value(at))}
