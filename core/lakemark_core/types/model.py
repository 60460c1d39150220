"""The types of table columns: immutable values that compare by content.

They are Spark's and Hive's, without intervals, unions and variants. Each column, struct field, list element, map key
and map value has a column id, by which statistics and schema evolution refer to it. Id 0 means that none is assigned
yet.

``kind`` tells what the values of a type are. It is None for nested types.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal as PyDecimal
from typing import ClassVar, TypeAlias

from lakemark_core.errors import InvalidSchema
from lakemark_core.types.primitives import PRIMITIVES, PrimitiveRecord, ValueKind

DECIMAL_PRECISION_MAX = 38
VARCHAR_LENGTH_MAX = 65535
CHAR_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parameters. ``timestamp`` is an instant (UTC, us), ``timestamp_ntz`` a wall-clock time."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in PRIMITIVES:
            raise InvalidSchema(f"'{self.name}' is not a type; known are {', '.join(PRIMITIVES)}")

    @property
    def record(self) -> PrimitiveRecord:
        """The type's row in the table of primitive types."""
        return PRIMITIVES[self.name]

    @property
    def kind(self) -> ValueKind:
        return PRIMITIVES[self.name].kind


@dataclass(frozen=True, slots=True)
class Decimal:
    """Exact numbers of up to ``precision`` digits, ``scale`` of them after the point."""

    kind: ClassVar[ValueKind] = ValueKind.DECIMAL
    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= DECIMAL_PRECISION_MAX:
            raise InvalidSchema(f"decimal precision {self.precision} is not between 1 and {DECIMAL_PRECISION_MAX}")
        if not 0 <= self.scale <= self.precision:
            raise InvalidSchema(f"decimal scale {self.scale} is not between 0 and the precision {self.precision}")


@dataclass(frozen=True, slots=True)
class Varchar:
    """Strings of at most ``length`` characters."""

    kind: ClassVar[ValueKind] = ValueKind.TEXT
    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= VARCHAR_LENGTH_MAX:
            raise InvalidSchema(f"varchar length {self.length} is not between 1 and {VARCHAR_LENGTH_MAX}")


@dataclass(frozen=True, slots=True)
class Char:
    """Strings of ``length`` characters; shorter ones compare as if padded with spaces."""

    kind: ClassVar[ValueKind] = ValueKind.TEXT
    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= CHAR_LENGTH_MAX:
            raise InvalidSchema(f"char length {self.length} is not between 1 and {CHAR_LENGTH_MAX}")


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table or a field of a struct."""

    id: int
    name: str
    type: Type
    nullable: bool = True
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields in order."""

    kind: ClassVar[None] = None
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """Hive's ``array``."""

    kind: ClassVar[None] = None
    element: Type
    element_id: int = 0
    element_nullable: bool = True


@dataclass(frozen=True, slots=True)
class MapOf:
    """Keys are never null."""

    kind: ClassVar[None] = None
    key: Type
    value: Type
    key_id: int = 0
    value_id: int = 0
    value_nullable: bool = True


Type: TypeAlias = Primitive | Decimal | Varchar | Char | Struct | ListOf | MapOf

ColumnValue: TypeAlias = bool | int | float | str | bytes | PyDecimal | dt.date | dt.datetime | None
"""A value of a column that is not nested; a datetime is in UTC for timestamp and naive for timestamp_ntz."""

BOOLEAN = Primitive("boolean")
TINYINT = Primitive("tinyint")
SMALLINT = Primitive("smallint")
INT = Primitive("int")
BIGINT = Primitive("bigint")
FLOAT = Primitive("float")
DOUBLE = Primitive("double")
STRING = Primitive("string")
BINARY = Primitive("binary")
DATE = Primitive("date")
TIMESTAMP = Primitive("timestamp")
TIMESTAMP_NTZ = Primitive("timestamp_ntz")

INTEGER_BITS: dict[Type, int] = {Primitive(record.name): record.bits for record in PRIMITIVES.values() if record.bits}
"""Width of each integer type."""


def is_integer(column_type: Type) -> bool:
    """Whether it is tinyint, smallint, int or bigint."""
    return column_type.kind is ValueKind.INTEGER


def is_floating(column_type: Type) -> bool:
    """Whether it is float or double."""
    return column_type.kind is ValueKind.FLOATING


def is_textual(column_type: Type) -> bool:
    """Whether it is string, varchar or char."""
    return column_type.kind is ValueKind.TEXT


def is_nested(column_type: Type) -> bool:
    """Whether it is a struct, an array or a map."""
    return column_type.kind is None
