"""Columns as a tree, of which one place is changed: structs have fields, lists an element, maps key and value. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakemark_core.errors import InvalidSchema
from lakemark_core.types import Field, ListOf, MapOf, Struct, Type, format_type


@dataclass(frozen=True, slots=True)
class Siblings:
    """The columns of the table, or the fields directly within the column ``owner``.

    ``fixed``: they are the element of a list, or key and value of a map, and not fields that a user named.
    """

    fields: tuple[Field, ...]
    owner: str = ""
    fixed: bool = False

    def index(self, name: str) -> int:
        """The index of the field with this name, in any case. Raises InvalidSchema."""
        for at, field in enumerate(self.fields):
            if field.name.lower() == name.lower():
                return at
        place = f"in '{self.owner}'" if self.owner else "in the table"
        shown = ", ".join(field.name for field in self.fields[:10])
        more = f" and {len(self.fields) - 10} more" if len(self.fields) > 10 else ""
        raise InvalidSchema(f"there is no '{name}' {place}, which has {shown}{more}")

    def replaced(self, at: int, field: Field) -> tuple[Field, ...]:
        return (*self.fields[:at], field, *self.fields[at + 1 :])

    def inserted(self, new: Field, *, first: bool, after: str) -> tuple[Field, ...]:
        """The fields with ``new`` first, after a sibling, or last. Raises InvalidSchema if there is no such sibling."""
        at = 0 if first else self.index(after) + 1 if after else len(self.fields)
        return (*self.fields[:at], new, *self.fields[at:])

    def without(self, at: int) -> tuple[Field, ...]:
        return self.fields[:at] + self.fields[at + 1 :]


Edit: TypeAlias = Callable[[Siblings, int], tuple[Field, ...]]
"""Takes siblings and an index. Returns the siblings after a change of the one at the index."""


def edit(siblings: Siblings, path: Sequence[str], change: Edit) -> tuple[Field, ...]:
    """The siblings after ``change`` at ``path``, among or below them. Raises InvalidSchema for a wrong path."""
    at = siblings.index(path[0])
    if len(path) == 1:
        return change(siblings, at)
    field = siblings.fields[at]
    inner = within(field)
    if inner is None:
        raise InvalidSchema(f"'{field.name}' is {format_type(field.type)}, which has no fields")
    if isinstance(field.type, MapOf) and path[1].lower() == "key":
        raise InvalidSchema("the keys of a map stay as they are: two of them could become one")
    return siblings.replaced(at, replace(field, type=_with(field.type, edit(inner, path[1:], change))))


def within(field: Field) -> Siblings | None:
    """The fields directly within a field; None if its type is primitive."""
    match field.type:
        case Struct(fields):
            return Siblings(fields, field.name)
        case ListOf(element, element_id, nullable):
            return Siblings((Field(element_id, "element", element, nullable),), field.name, fixed=True)
        case MapOf(key, value, key_id, value_id, nullable):
            pair = (Field(key_id, "key", key, nullable=False), Field(value_id, "value", value, nullable))
            return Siblings(pair, field.name, fixed=True)
    return None


def depth_of(column_type: Type) -> int:
    """How deep types are nested: 0 for a primitive type."""
    match column_type:
        case Struct(fields):
            return 1 + max((depth_of(field.type) for field in fields), default=0)
        case ListOf(element):
            return 1 + depth_of(element)
        case MapOf(key, value):
            return 1 + max(depth_of(key), depth_of(value))
    return 0


def count_of(fields: Sequence[Field]) -> int:
    """The number of fields of all levels."""
    return sum(1 + _count_within(field.type) for field in fields)


def _count_within(column_type: Type) -> int:
    match column_type:
        case Struct(fields):
            return count_of(fields)
        case ListOf(element):
            return 1 + _count_within(element)
        case MapOf(key, value):
            return 2 + _count_within(key) + _count_within(value)
    return 0


def _with(column_type: Type, fields: tuple[Field, ...]) -> Type:
    match column_type:
        case ListOf():
            (element,) = fields
            return replace(column_type, element=element.type, element_nullable=element.nullable)
        case MapOf():
            key, value = fields
            return replace(column_type, key=key.type, value=value.type, value_nullable=value.nullable)
    return Struct(fields)
