"""How files of an older schema are read with a newer one: columns are found by id, under the name they had then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from lakemark_core.evolution.widening import keeps_text, why_not_widen
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type, format_type, is_textual


def readable_with(file_schema: Schema, latest: Schema) -> list[str]:
    """Why files that were written with ``file_schema`` cannot be read with ``latest``; empty if they can.

    Both are schemas of one table, so that ids mean the same. Every legal change keeps all older files readable.
    """
    pairs = zip_longest(file_schema.partition_fields, latest.partition_fields)
    if any(old is None or new is None or old.id != new.id or old.name != new.name for old, new in pairs):
        old_names, new_names = (", ".join(one.partition_columns) or "none" for one in (file_schema, latest))
        return [f"the partition columns were {old_names} and are {new_names} now"]
    reasons = [
        f"partition column '{new.name}' was {format_type(old.type)} and is {format_type(new.type)} now: "
        "the names of its partitions would change"
        for old, new in zip(file_schema.partition_fields, latest.partition_fields, strict=True)
        if why_not_widen(old.type, new.type) or (old.type != new.type and not keeps_text(old.type, new.type))
    ]
    return reasons + _unreadable(file_schema.data_columns, latest.data_columns, "")


def source_of(field: Field, stored: Sequence[Field]) -> Field | None:
    """The field of the file's schema that holds the values of ``field``; None if ``field`` was added later."""
    return next((one for one in stored if one.id == field.id), None)


def read_alike(old: Type, new: Type) -> bool:
    """Whether values of ``old`` in a file are read as ``new`` as they are: same fields, names and primitive types.

    Texts are alike whatever their declared length. Case of names, comments and nullability do not matter.
    """
    match old, new:
        case Struct(fields), Struct(others):
            return len(fields) == len(others) and all(
                a.id == b.id and a.name.lower() == b.name.lower() and read_alike(a.type, b.type)
                for a, b in zip(fields, others, strict=True)
            )
        case ListOf(element, element_id), ListOf(other, other_id):
            return element_id == other_id and read_alike(element, other)
        case MapOf(key, value), MapOf(other_key, other_value):
            same = (old.key_id, old.value_id) == (new.key_id, new.value_id)
            return same and read_alike(key, other_key) and read_alike(value, other_value)
    return old == new or (is_textual(old) and is_textual(new))


def sources_of(fields: Iterable[Field], stored: Iterable[Field]) -> dict[int, Field]:
    """``source_of`` for many fields, by their ids, without the fields that were added later."""
    by_id = {one.id: one for one in stored}
    return {field.id: by_id[field.id] for field in fields if field.id in by_id}


def reading_groups(schemas: Mapping[int, Schema], wanted: Schema) -> list[frozenset[int]]:
    """The file schemas (by id), in groups that one scan by column names serves; in the order of their latest members.

    ``wanted`` is one of them or came after them. In a group each column of it has one name and one type in all the
    files that have it, and no file has another column under that name: a reader that fills what is missing with nulls
    answers exactly.
    """
    groups: list[_Group] = []
    for schema_id in sorted(schemas, reverse=True):
        one = _Stored(schemas[schema_id], wanted)
        home = next((group for group in groups if group.takes(one)), None)
        if home is None:
            groups.append(home := _Group())
        home.add(schema_id, one)
    return [frozenset(group.ids) for group in reversed(groups)]


def scanned_columns(group: Sequence[Schema], wanted: Schema) -> list[tuple[Field, Field | None]]:
    """Each data column of ``wanted`` with the column that a scan of a group's files asks for; None if no file has it.

    The latter has the name and the type of the files, or those of ``wanted`` where they are read alike.
    """
    sources: dict[int, Field] = {}
    for schema in sorted(group, key=lambda schema: schema.schema_id):
        sources |= sources_of(wanted.data_columns, schema.data_columns)
    return [(column, _scanned(column, sources.get(column.id))) for column in wanted.data_columns]


def _scanned(column: Field, source: Field | None) -> Field | None:
    if source is None:
        return None
    name = column.name if column.name.lower() == source.name.lower() else source.name
    return Field(column.id, name, column.type if read_alike(source.type, column.type) else source.type)


class _Stored:
    """The wanted columns that a schema has, by id, and the names of all its columns."""

    def __init__(self, schema: Schema, wanted: Schema) -> None:
        self.sources = sources_of(wanted.data_columns, schema.data_columns)
        self.names = frozenset(column.name.lower() for column in schema.columns)


class _Group:
    """Schemas that one scan serves; newer ones are added first.

    A column that an older schema and the wanted one have was never dropped in between: all newer members have it too.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._sources: dict[int, Field] = {}

    def takes(self, older: _Stored) -> bool:
        for column_id, source in self._sources.items():
            mine = older.sources.get(column_id)
            if mine is None:
                if source.name.lower() in older.names:
                    return False
            elif mine.name.lower() != source.name.lower() or not read_alike(mine.type, source.type):
                return False
        return True

    def add(self, schema_id: int, older: _Stored) -> None:
        self.ids.append(schema_id)
        self._sources |= older.sources


def _unreadable(stored: Sequence[Field], wanted: Sequence[Field], prefix: str) -> list[str]:
    reasons: list[str] = []
    for field in wanted:
        path = prefix + field.name
        source = source_of(field, stored)
        if not field.nullable and (source is None or source.nullable):
            reasons.append(f"column '{path}' is NOT NULL now and {'was not' if source else 'did not exist'} then")
        if source is not None:
            reasons += _type_unreadable(source.type, field.type, path)
    return reasons


def _type_unreadable(old: Type, new: Type, path: str) -> list[str]:
    match old, new:
        case Struct(fields), Struct(others):
            return _unreadable(fields, others, path + ".")
        case ListOf(), ListOf():
            return _unreadable([_element(old)], [_element(new)], path + ".")
        case MapOf(), MapOf():
            return _unreadable(_key_and_value(old), _key_and_value(new), path + ".")
    reason = why_not_widen(old, new)
    if not reason:
        return []
    return [f"column '{path}' was {format_type(old)} and is {format_type(new)} now: {reason}"]


def _element(column_type: ListOf) -> Field:
    return Field(column_type.element_id, "element", column_type.element, column_type.element_nullable)


def _key_and_value(column_type: MapOf) -> list[Field]:
    return [
        Field(column_type.key_id, "key", column_type.key, nullable=False),
        Field(column_type.value_id, "value", column_type.value, column_type.value_nullable),
    ]
