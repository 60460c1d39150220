"""A table's schema: its columns, which of them partition it, and the ids by which metadata refers to them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lakemark_core.errors import InvalidSchema
from lakemark_core.types.model import Field, ListOf, MapOf, Struct, Type
from lakemark_core.types.text import format_type
from lakemark_core.types.values import CODECS

NAME_LENGTH_MAX = 255
COLUMNS_MAX = 20_000
# Hive's own column lists are separated by these, and a backquote cannot be written in a Hive identifier.
_FORBIDDEN_IN_NAMES = ",;:`"


@dataclass(frozen=True)
class Schema:
    """Columns in order, partition columns last (as Hive has them). ``Schema.build`` checks; the constructor trusts."""

    columns: tuple[Field, ...]
    partition_columns: tuple[str, ...] = ()
    schema_id: int = 0

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Schema], tuple[object, ...]]:
        """Leaves out cached values: the hashes of texts differ between processes."""
        return Schema, (self.columns, self.partition_columns, self.schema_id)

    @classmethod
    def build(cls, columns: Sequence[Field], partition_columns: Sequence[str] = (), schema_id: int = 0) -> Schema:
        """A valid schema. Partition columns are moved behind the data columns, in the order of ``partition_columns``.

        Raises InvalidSchema: no data column, duplicate or illegal names, an unknown partition column, one of a type
        that has no stable text (nested, binary, floating point).
        """
        by_name = _check_names(columns, "table")
        partitions: list[Field] = []
        for name in partition_columns:
            column = by_name.get(name.lower())
            if column is None:
                raise InvalidSchema(f"partition column '{name}' is not among the columns {_names(columns)}")
            if column in partitions:
                raise InvalidSchema(f"partition column '{name}' is named twice")
            _check_partition_type(column)
            partitions.append(column)
        data = [column for column in columns if column not in partitions]
        if not data:
            raise InvalidSchema("a table needs at least one column that is not a partition column")
        if len(columns) > COLUMNS_MAX:
            raise InvalidSchema(f"{len(columns)} columns; a table has at most {COLUMNS_MAX}")
        _check_ids(columns)
        return cls((*data, *partitions), tuple(column.name for column in partitions), schema_id)

    @property
    def data_columns(self) -> tuple[Field, ...]:
        """The columns that data files hold."""
        return self.columns[: len(self.columns) - len(self.partition_columns)]

    @property
    def partition_fields(self) -> tuple[Field, ...]:
        """The partition columns, in the order of the partition path."""
        return self.columns[len(self.columns) - len(self.partition_columns) :]

    def find(self, name: str) -> Field | None:
        """The column of this name; case does not matter."""
        return self._by_name.get(name.lower())

    def field(self, name: str) -> Field:
        """Like ``find``; raises InvalidSchema that suggests near names."""
        column = self.find(name)
        if column is None:
            raise InvalidSchema(f"there is no column '{name}'{self.suggest(name)}")
        return column

    def find_path(self, path: Sequence[str]) -> Field | None:
        """The field that a path of names leads to, through structs: ``("address", "city")``."""
        reached = self.find(path[0]) if path else None
        for name in path[1:]:
            if reached is None or not isinstance(reached.type, Struct):
                return None
            reached = next((field for field in reached.type.fields if field.name.lower() == name.lower()), None)
        return reached

    def find_id(self, column_id: int) -> Field | None:
        """The column or nested struct field with this id."""
        return self._by_id.get(column_id)

    def is_partition(self, name: str) -> bool:
        """Whether this column is a partition column; case does not matter."""
        return name.lower() in self._partition_names

    def suggest(self, name: str) -> str:
        """The end of a message about an unknown column: names that are near to it, or the first columns."""
        near = difflib.get_close_matches(name.lower(), list(self._by_name), n=3)
        if near:
            return "; did you mean " + " or ".join(f"'{self._by_name[one].name}'" for one in near) + "?"
        return f"; the columns are {_names(self.columns)}"

    @property
    def last_id(self) -> int:
        """The highest id in use; 0 if none is assigned."""
        return max((max_id(column) for column in self.columns), default=0)

    def as_json(self) -> dict[str, Any]:
        """The schema as a JSON object, its types as text."""
        columns = [
            {
                "id": column.id,
                "name": column.name,
                "type": format_type(column.type),
                "nullable": column.nullable,
                "comment": column.comment,
            }
            for column in self.columns
        ]
        return {
            "schema_id": self.schema_id,
            "columns": columns,
            "partition_columns": list(self.partition_columns),
        }

    @cached_property
    def _hash(self) -> int:
        """The hash of all fields, kept because schemas are the keys of many caches."""
        return hash((self.columns, self.partition_columns, self.schema_id))

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {column.name.lower(): column for column in self.columns}

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {field.id: field for column in self.columns for field in _fields_within(column) if field.id}

    @cached_property
    def _partition_names(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.partition_columns)


def assign_ids(schema: Schema, last_id: int = 0) -> tuple[Schema, int]:
    """The schema with an id for every field that has none, and the highest id ever used.

    Ids start behind both ``last_id`` (the table's highest id so far: ids of dropped columns are never used again) and
    the ids in the schema. Ids that are set stay.
    """
    numbers = _Numbers(max(last_id, schema.last_id))
    # Top-level columns first, so that simple tables count 1, 2, 3.
    columns = [replace(column, id=numbers.or_next(column.id)) for column in schema.columns]
    columns = [replace(column, type=_with_ids(column.type, numbers)) for column in columns]
    return replace(schema, columns=tuple(columns)), numbers.last


def max_id(field: Field) -> int:
    """The highest id in a field and all that it contains."""
    return max(field.id, _max_type_id(field.type))


@dataclass
class _Numbers:
    last: int

    def or_next(self, current: int) -> int:
        if current:
            return current
        self.last += 1
        return self.last


def _with_ids(column_type: Type, numbers: _Numbers) -> Type:
    match column_type:
        case Struct(fields):
            named = [replace(field, id=numbers.or_next(field.id)) for field in fields]
            return Struct(tuple(replace(field, type=_with_ids(field.type, numbers)) for field in named))
        case ListOf(element, element_id, nullable):
            element_id = numbers.or_next(element_id)
            return ListOf(_with_ids(element, numbers), element_id, nullable)
        case MapOf(key, value, key_id, value_id, nullable):
            key_id, value_id = numbers.or_next(key_id), numbers.or_next(value_id)
            return MapOf(_with_ids(key, numbers), _with_ids(value, numbers), key_id, value_id, nullable)
        case _:
            return column_type


def _type_ids(column_type: Type) -> Iterator[int]:
    match column_type:
        case Struct(fields):
            for field in fields:
                yield field.id
                yield from _type_ids(field.type)
        case ListOf(element, element_id):
            yield element_id
            yield from _type_ids(element)
        case MapOf(key, value, key_id, value_id):
            yield from (key_id, value_id)
            yield from _type_ids(key)
            yield from _type_ids(value)


def _max_type_id(column_type: Type) -> int:
    return max(_type_ids(column_type), default=0)


def _fields_within(field: Field) -> Iterator[Field]:
    yield field
    if isinstance(field.type, Struct):
        for inner in field.type.fields:
            yield from _fields_within(inner)


def _check_ids(columns: Sequence[Field]) -> None:
    seen: set[int] = set()
    for column in columns:
        for one in (column.id, *_type_ids(column.type)):
            if one < 0 or one in seen:
                raise InvalidSchema(f"column '{column.name}': id {one} is {'negative' if one < 0 else 'used twice'}")
            if one:
                seen.add(one)


def _check_names(fields: Sequence[Field], owner: str) -> dict[str, Field]:
    by_name: dict[str, Field] = {}
    for field in fields:
        _check_name(field.name)
        if field.name.lower() in by_name:
            raise InvalidSchema(f"the {owner} has two columns '{field.name}' (case does not matter)")
        by_name[field.name.lower()] = field
        _check_nested_names(field.type, field.name)
    return by_name


def _check_nested_names(column_type: Type, owner: str) -> None:
    match column_type:
        case Struct(fields):
            if not fields:
                raise InvalidSchema(f"struct '{owner}' has no fields")
            _check_names(fields, f"struct '{owner}'")
        case ListOf(element):
            _check_nested_names(element, owner)
        case MapOf(key, value):
            _check_nested_names(key, owner)
            _check_nested_names(value, owner)


def _check_name(name: str) -> None:
    if not name or name != name.strip():
        raise InvalidSchema(f"column name {name!r} is empty or begins or ends with a space")
    if len(name.encode(errors="replace")) > NAME_LENGTH_MAX:
        raise InvalidSchema(f"column name '{name[:40]}…' is longer than {NAME_LENGTH_MAX} bytes")
    bad = next((char for char in name if char in _FORBIDDEN_IN_NAMES or not char.isprintable()), None)
    if bad is not None:
        raise InvalidSchema(f"column name {name!r} contains {bad!r}, which a column name cannot have")


def _check_partition_type(column: Field) -> None:
    # A partition's value is text in paths and in the metastore: what has not exactly one text cannot name a partition.
    if column.type.kind is None or not CODECS[column.type.kind].names_partitions:
        raise InvalidSchema(
            f"column '{column.name}' of type {format_type(column.type)} cannot be a partition column; "
            "use an integer, string, date, timestamp, decimal or boolean column"
        )


def _names(columns: Sequence[Field]) -> str:
    shown = ", ".join(column.name for column in columns[:10])
    return shown + (f" and {len(columns) - 10} more" if len(columns) > 10 else "")
